"""Compilation of the kernels for any GPU, on any machine: registers, spills, shared memory, tensor-core instructions.

Triton's wheel brings the assembler and the disassembler; nothing runs. Raises what Triton raises for a kernel that does
not compile.
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pretrain.model.fused.gpu.backward_distances import distances_backward
from pretrain.model.fused.gpu.backward_keys import keys_backward
from pretrain.model.fused.gpu.backward_rows import rows_backward
from pretrain.model.fused.gpu.forward import attend_forward
from pretrain.model.fused.gpu.tile_sizes import (
    MAX_RUNS,
    Architecture,
    Kernel,
    Spread,
    Tile,
    padded_head_dim,
)

_FUNCTIONS = {
    "forward": attend_forward,
    "rows": rows_backward,
    "keys": keys_backward,
    "distances": distances_backward,
}
_FLOAT32 = ("log_sum", "row_dot", "content_sum", "distance_sum", "bias_sum")
_FLOATS = ("scale", "keep_scale")
_LONG = ("seed", "threshold")
_COUNTS = ("num_rows", "num_rows_padded", "num_columns", "num_distances", "num_lanes")
_INDICES = ("row_", "key_index", "key_code", "key_document", "tile_", "runs", "num_runs")
_TENSOR_CORE = re.compile(r"\b(HGMMA|HMMA|UTCHMMA|UTCMMA)\b")
_SHARED_LIMIT_BYTES = {"sm_80": 99 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
"""A program's most shared memory; of sm_80 that of its relatives 8.6 and 8.9, which have less than 8.0."""


@dataclass(frozen=True)
class Configuration:
    """What a kernel is compiled for."""

    kernel: Kernel
    architecture: Architecture
    type_name: str
    """bf16 or fp32."""
    head_dim: int
    spread: Spread
    tile: Tile
    has_documents: bool = True
    has_dropout: bool = True
    has_biases: bool = True

    def __str__(self) -> str:
        extras = [
            name
            for name, is_there in (
                ("documents", self.has_documents),
                ("dropout", self.has_dropout),
                ("biases", self.has_biases),
            )
            if is_there
        ]
        tile = f"{self.tile.rows}x{self.tile.columns}, {self.tile.warps} warps, {self.tile.stages} stages"
        what = f"{self.kernel} {self.architecture} {self.type_name} head {self.head_dim} {self.spread}"
        return f"{what} {tile} ({', '.join(extras) or 'plain'})"


@dataclass(frozen=True)
class Compiled:
    """What the compiled code needs."""

    registers: int
    """Of a thread."""
    spilled_bytes: int
    """Of a thread's registers in memory."""
    shared_bytes: int
    tensor_core_loops: int
    """Loops with tensor-core instructions in them."""
    tensor_core_instructions: dict[str, int]
    programs_per_multiprocessor: int
    """How many programs run on a multiprocessor at once."""

    def runs(self, architecture: Architecture) -> bool:
        """Return whether the shared memory suffices and the loops use tensor cores."""
        return self.shared_bytes <= _SHARED_LIMIT_BYTES[architecture] and self.tensor_core_loops > 0

    def fits(self, architecture: Architecture) -> bool:
        """Return whether the kernel runs without spilled registers."""
        return self.runs(architecture) and self.spilled_bytes == 0


def compile_kernel(configuration: Configuration) -> Compiled:
    """Compile a kernel and read what it needs from the code."""
    function, tile = _FUNCTIONS[configuration.kernel], configuration.tile
    names: list[str] = function.arg_names
    constants = _constants(configuration)
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for place, name in enumerate(names):
        kind = "constexpr" if name in constants else _type_of(name, configuration.type_name)
        signature[name] = kind
        is_aligned = name in ("num_rows_padded", "num_columns") or (
            "_stride_" in name and not name.startswith("document")
        )
        if kind.startswith("*") or is_aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    return compile_function(
        function,
        signature,
        {name: value for name, value in constants.items() if name in names},
        attributes,
        configuration.architecture,
        warps=tile.warps,
        stages=tile.stages,
    )


def compile_function(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    attributes: Mapping[tuple[int, ...], list[list[Any]]],
    architecture: Architecture,
    warps: int,
    stages: int,
) -> Compiled:
    """Compile a function of Triton's and read what it needs from the code.

    `signature` has the type of every argument, "constexpr" for those in `constants`; `attributes` has what is known of
    arguments, by their places.
    """
    source = ASTSource(
        fn=function, signature=dict(signature), constexprs=dict(constants), attrs=dict(attributes)
    )
    target = GPUTarget("cuda", int(architecture[3:]), 32)
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=target, options=options)
    return _read(compiled.asm["cubin"], compiled.metadata.shared, warps, architecture)


def _constants(configuration: Configuration) -> dict[str, Any]:
    has_distances = configuration.spread != "none"
    return {
        "HEAD_DIM": configuration.head_dim,
        "H": padded_head_dim(configuration.head_dim),
        "ROWS": configuration.tile.rows,
        "COLUMNS": configuration.tile.columns,
        "MAX_RUNS": MAX_RUNS,
        "HAS_DISTANCES": has_distances,
        "HAS_CONTENT_BIAS": configuration.has_biases,
        "HAS_DISTANCE_BIAS": configuration.has_biases and has_distances,
        "HAS_DOCUMENTS": configuration.has_documents,
        "HAS_DROPOUT": configuration.has_dropout,
        "WIDE": configuration.spread == "wide",
        "PRECISION": "tf32x3" if configuration.type_name == "fp32" else "ieee",
    }


def _type_of(name: str, type_name: str) -> str:
    if name in _COUNTS or "_stride_" in name:
        return "i32"
    if name in _FLOAT32:
        return "*fp32"
    if name in _FLOATS:
        return "fp32"
    if name in _LONG:
        return "i64"
    return "*i32" if name.startswith(_INDICES) else f"*{type_name}"


def _read(cubin: bytes, shared_bytes: int, warps: int, architecture: Architecture) -> Compiled:
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = _run(tools / "cuobjdump", "--dump-resource-usage", path)
        code = _run(tools / "nvdisasm", "-c", path)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    assert found is not None, usage
    registers, stack_bytes, local_bytes = map(int, found.groups())
    instructions: dict[str, int] = {}
    for name in _TENSOR_CORE.findall(code):
        instructions[name] = instructions.get(name, 0) + 1
    return Compiled(
        registers,
        stack_bytes + local_bytes,
        shared_bytes,
        sum(1 for body in _loops(code) if _TENSOR_CORE.search(body)),
        instructions,
        _programs(registers, shared_bytes, warps, architecture),
    )


def _run(*words: object) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout


def _loops(code: str) -> list[str]:
    """Return the code between each label and a later branch back to it."""
    lines = code.splitlines()
    labels = {
        line.strip()[:-1]: number
        for number, line in enumerate(lines)
        if re.match(r"\.L_x_\d+:", line.strip())
    }
    loops = []
    for number, line in enumerate(lines):
        if found := re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", line):
            first = labels.get(found[1], number)
            if first < number:
                loops.append("\n".join(lines[first:number]))
    return loops


def _programs(registers: int, shared_bytes: int, warps: int, architecture: Architecture) -> int:
    """Return how many programs a multiprocessor holds: by registers (64K), shared memory and threads (2,048)."""
    total_shared = {"sm_80": 164 * 1024, "sm_90": 228 * 1024, "sm_100": 228 * 1024}[architecture]
    per_warp = -(-registers * 32 // 256) * 256
    return min(65_536 // (per_warp * warps), total_shared // (shared_bytes + 1024), 64 // warps)
