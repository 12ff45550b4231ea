"""Compare the peak memory of a training step with the peers': `python -m benchmarks.model_memory`.

Every contender is measured in its own process, after one warm-up step. Two numbers:

- peak: the peak memory of the process during forward, loss and backward (VmHWM) minus its memory before (weights,
  input, segment memory). It includes gradients but no optimizer state. Every tensor has its own mapping, so that freed
  memory is not counted.
- saved: the bytes that autograd keeps from forward to backward, each storage once, without weights; it includes the
  copies of weights that autocast creates.

Hugging Face's XLNet has no activation checkpointing.
"""

import argparse
import gc
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.model_contenders import HFGPT2, Contender, HFXLNet, Ours, Precision
from benchmarks.model_machine import EXACT_HEAP, describe_machine, keep, print_table, use_environment
from benchmarks.model_sizes import SIZES, Batch, Size

CONTENDERS: dict[str, tuple[type[Ours] | type[HFXLNet] | type[HFGPT2], Precision]] = {
    "ours bfloat16": (Ours, "bfloat16"),
    "ours autocast": (Ours, "autocast"),
    "XLNet autocast": (HFXLNet, "autocast"),
    "GPT-2 autocast": (HFGPT2, "autocast"),
    "GPT-2 bfloat16": (HFGPT2, "bfloat16"),
}
CHECKPOINTED = ("ours bfloat16", "ours autocast", "GPT-2 autocast", "GPT-2 bfloat16")
WITH_CHECKPOINTING = ", checkpointed"


@dataclass(frozen=True)
class Memory:
    """The memory that one step needs in addition to weights, in bytes."""

    peak_bytes: int
    saved_bytes: int
    gradient_bytes: int


def held_bytes(field: str) -> int:
    """Return VmRSS (current) or VmHWM (peak) of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}: this benchmark needs Linux")


def forget_peak() -> None:
    """Reset VmHWM."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        raise SystemExit(
            f"cannot reset this process's peak memory ({error}): run outside the sandbox"
        ) from error


def saved_bytes(contender: Contender) -> int:
    """Return the bytes that a step keeps for its backward pass, without weights."""
    weights = {value.untyped_storage().data_ptr() for value in contender.model.parameters()}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        contender.step()
    return sum(found.values())


def measure(contender: Contender) -> Memory:
    """Measure the memory of one step, in this process."""
    contender.step()
    gc.collect()
    before_bytes = held_bytes("VmRSS")
    forget_peak()
    contender.gradients()
    peak_bytes = held_bytes("VmHWM") - before_bytes
    gradients = [value.grad for value in contender.model.parameters() if value.grad is not None]
    gradient_bytes = sum(gradient.nbytes for gradient in gradients)
    contender.model.zero_grad(set_to_none=True)
    return Memory(peak_bytes, saved_bytes(contender), gradient_bytes)


def build(name: str, size: Size, num_targets: int) -> Contender:
    """Build the contender of that name."""
    kind, precision = CONTENDERS[name.removesuffix(WITH_CHECKPOINTING)]
    contender = kind(size, precision, Batch.random(size, num_targets, seed=0))
    if name.endswith(WITH_CHECKPOINTING):
        if isinstance(contender, Ours):
            contender.model.recompute = "layers"
        else:
            contender.model.gradient_checkpointing_enable()
    return contender


def measure_apart(name: str, size: Size, num_targets: int) -> Memory:
    """Measure the memory of one step in a new process."""
    command = [sys.executable, "-m", "benchmarks.model_memory", "--size", size.name]
    command += ["--only", name, "--targets", str(num_targets)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Memory(**json.loads(answer.splitlines()[-1]))


def table(size: Size, names: list[str]) -> None:
    """Measure every contender at one size and print their table; P = L/6."""
    num_targets, rows = size.segment_tokens // 6, []
    for name in names:
        memory = measure_apart(name, size, num_targets)
        setting = {
            "size": size.name,
            "num_targets": num_targets,
            "contender": name,
            "tokens": size.num_tokens,
        }
        keep("memory", setting | asdict(memory))
        cells = [f"{memory.peak_bytes / 2**20:.0f}", f"{memory.peak_bytes / 1024 / size.num_tokens:.1f}"]
        cells += [f"{memory.gradient_bytes / 2**20:.0f}", f"{memory.saved_bytes / 2**20:.0f}"]
        rows.append([name, *cells, f"{memory.saved_bytes / 1024 / size.num_tokens:.1f}"])
    head = ["contender", "peak MiB", "peak KiB/token", "gradients in it MiB", "saved MiB", "saved KiB/token"]
    print_table(f"{size.name}, {size.num_tokens} tokens a step, P = {num_targets}", head, rows)


def main() -> None:
    """Measure all contenders at both sizes; with --only one, and print its numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--size", choices=sorted(SIZES))
    parser.add_argument("--only")
    parser.add_argument("--targets", type=int)
    arguments = parser.parse_args()
    use_environment(EXACT_HEAP)
    if arguments.only:
        memory = measure(build(arguments.only, SIZES[arguments.size], arguments.targets))
        print(json.dumps(asdict(memory)))
        return
    print(f"Memory: {describe_machine()}")
    if arguments.quick:
        table(SIZES["tiny"], ["ours bfloat16", "XLNet autocast"])
        return
    names = [*CONTENDERS, *(name + WITH_CHECKPOINTING for name in CHECKPOINTED)]
    for size in ("S", "M") if arguments.size is None else (arguments.size,):
        table(SIZES[size], names)


if __name__ == "__main__":
    main()
