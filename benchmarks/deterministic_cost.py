"""Measure the cost of the deterministic mode: `python -m benchmarks.deterministic_cost PREP` (a prep folder).

The demo's model on two workers, eight lanes each, the fast and the deterministic mode in turn, in bfloat16 and in
float32; medians of the steps' tokens per second.
"""

import argparse
import statistics
from pathlib import Path

from benchmarks.weak_scaling import short_run, tokens_per_s

_NUM_WORKERS = 2
_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prep", type=Path)
    parser.add_argument("--steps", type=int, default=40, help="of each run")
    arguments = parser.parse_args()
    for precision in ("bf16", "fp32"):
        rates: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(_ROUNDS):
            for deterministic, found in rates.items():
                config = short_run(
                    _NUM_WORKERS, arguments.steps, precision=precision, deterministic=deterministic
                )
                found.append(tokens_per_s(config, arguments.prep.absolute()))
        ratios = [fast / exact for fast, exact in zip(rates[False], rates[True], strict=True)]
        print(
            f"{precision}: fast {statistics.median(rates[False]):,.0f} tokens/s, deterministic "
            f"{statistics.median(rates[True]):,.0f}; a step takes {statistics.median(ratios):.2f}x "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
