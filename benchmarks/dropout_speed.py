"""Compare dropout in C++ with PyTorch's, forward and backward, one thread: `python -m benchmarks.dropout_speed`."""

import statistics
import time

import torch
from torch import Tensor, nn

from pretrain.model.dropout import Dropout
from pretrain.model.fused.operators import load_operators

_ROUNDS = 15
_SHAPE = (4096, 1024)
_PROBABILITY = 0.1


def main() -> None:
    """Print the median of the rounds' ratios for each dtype."""
    if reason := load_operators():
        raise SystemExit(f"the operators are not there: {reason}")
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(_SHAPE, dtype=dtype, requires_grad=True)
        ours, theirs = Dropout(_PROBABILITY), nn.Dropout(_PROBABILITY)
        _seconds(ours, x)
        _seconds(theirs, x)
        rounds = [(_seconds(ours, x), _seconds(theirs, x)) for _ in range(_ROUNDS)]
        ratio = statistics.median(other / own for own, other in rounds)
        own_s = statistics.median(own for own, _ in rounds)
        print(f"{dtype}: {1e3 * own_s:.1f} ms, PyTorch's takes {ratio:.1f} times as long")


def _seconds(dropout: nn.Module, x: Tensor) -> float:
    started_s = time.process_time()
    dropped: Tensor = dropout(x)
    dropped.backward(torch.ones_like(dropped))
    return time.process_time() - started_s


if __name__ == "__main__":
    main()
