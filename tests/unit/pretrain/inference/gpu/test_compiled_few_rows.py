"""The kernels for few rows compile for GPUs that are not there, and spill no registers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[5]
MOST_REGISTERS = 255
FEW_BYTES = 8
"""Two registers, which float32 with padded head dimensions spills on sm_80."""
_SCRIPT = """
import itertools, json, sys
from dataclasses import asdict
from pretrain.inference.gpu import few_rows
from pretrain.model.fused.gpu.compilation import compile_function

VECTORS = ("query", "distance_query", "key", "value", "distance", "document")
TYPES = {"hidden": None, "other": "*i1", "column": "*i64", "part": "*fp32", "log_sum": "*fp32"}
MOST = ((64, "bf16"), (128, "bf16"), (128, "fp32"))
OTHERS = ((64, "fp32"), (80, "bf16"), (80, "fp32"))

def compiled(function, constants, type_name, architecture, warps):
    signature, attributes = {}, {}
    for place, name in enumerate(function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in VECTORS or name in ("hidden", "mixed"):
            signature[name] = f"*{type_name}"
        else:
            signature[name] = TYPES.get(name, "i32")
        steps_of_vectors = "_stride_" in name and name.split("_stride_")[0] in VECTORS[:5]
        if signature[name].startswith("*") or steps_of_vectors:
            attributes[(place,)] = [["tt.divisibility", 16]]
    return compile_function(function, signature, constants, attributes, architecture, warps, stages=3)

found = {}
shapes = [(*one, True) for one in MOST]
if "all" in sys.argv:
    shapes = [(*one, has_all) for one in MOST + OTHERS for has_all in (True, False)]
for architecture, (head_dim, type_name, has_all) in itertools.product(("sm_80", "sm_90", "sm_100"), shapes):
    name = f"{architecture} {type_name} {head_dim} {has_all}"
    dims = {"HEAD_DIM": head_dim, "H": 1 << (head_dim - 1).bit_length()}
    flags = dict.fromkeys(("HAS_DISTANCES", "HAS_HIDDEN", "HAS_OTHER"), has_all)
    constants = dims | {"COLUMNS": few_rows._BLOCK_COLUMNS} | flags
    attend = compiled(few_rows._attend_split, constants, type_name, architecture, 4)
    found[f"attend {name}"] = asdict(attend)
    if has_all:
        splits = few_rows._MAX_SPLITS
        warps = few_rows.merge_warps(splits, dims["H"])
        merge = compiled(few_rows._merge_splits, dims | {"SPLITS": splits}, type_name, architecture, warps)
        found[f"merge {name}"] = asdict(merge)
print(json.dumps(found))
"""


def _compiled(*words: str) -> dict[str, dict[str, int]]:
    """Compile in a process that does not interpret; return what each kernel needs."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *words],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


def _assert_fit(found: dict[str, dict[str, int]], most_spilled_bytes: int = 0) -> None:
    for name, needs in found.items():
        assert needs["spilled_bytes"] <= most_spilled_bytes, name
        assert 0 < needs["registers"] <= MOST_REGISTERS, name
        assert needs["programs_per_multiprocessor"] >= 2, name


def test_the_kernels_compile_without_spills() -> None:
    found = _compiled()
    assert len(found) == 18
    _assert_fit(found)


@pytest.mark.slow
def test_the_kernels_compile_for_all_types_and_head_dimensions() -> None:
    found = _compiled("all")
    assert len(found) == 54
    _assert_fit(found, FEW_BYTES)
