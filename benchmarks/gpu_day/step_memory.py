"""The most memory of a training pass over L, with the kernels and in plain operations, one lane."""

import torch

from benchmarks.gpu_day.day import Day, StepShape
from benchmarks.gpu_day.timing import EXPONENT, free_memory, growth_exponent, peak_of
from benchmarks.gpu_day.training_step import OurStep, attention_by

TABLE, GROWTH_TABLE = "Most memory of a forward and backward pass, one lane", "Growth with L"


def run(day: Day) -> None:
    """Measure both at all lengths, until one does not fit."""
    memory_tokens = day.scale.steps[0].memory_tokens
    for kernels in (True, False):
        peaks: dict[int, float] = {}
        name = "kernels" if kernels else "plain"
        for length in day.scale.memory_lengths:
            if not day.has_time(1.0, f"{name}, L = {length}"):
                break
            shape = StepShape(length, memory_tokens, 1)
            row = {"attention": name, "L": length, "M": memory_tokens}
            try:
                peaks[length] = _peak(day, shape, kernels)
            except torch.OutOfMemoryError:
                day.add(TABLE, row | {"peak MiB": "does not fit"})
                free_memory(day.device)
                break
            day.add(
                TABLE,
                row | {"peak MiB": peaks[length] / 2**20, "KiB per token": peaks[length] / length / 2**10},
            )
        if len(peaks) > 1:
            exponent = growth_exponent(list(peaks), list(peaks.values()))
            row = {
                "attention": name,
                "lengths": sorted(peaks)[-2:],
                EXPONENT: exponent,
            }
            day.add(GROWTH_TABLE, row)


def _peak(day: Day, shape: StepShape, kernels: bool) -> float:
    """Return the bytes beside weights and optimizer of a pass with a full memory."""
    with attention_by(kernels, day.device):
        one = OurStep(day.scale, shape, day.device, dropout=False)
        one.pass_only()
        one.model.zero_grad(set_to_none=False)
        with peak_of(day.device) as peak:
            one.pass_only()
    del one
    free_memory(day.device)
    return peak.num_bytes
