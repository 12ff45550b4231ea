"""What written texts lack beside their references: empty ones, runs that go round, names that were not copied.

    python -m benchmarks.analyses.translations OUT/translation-KEY/*/seed-0/predictions.jsonl
    python -m benchmarks.analyses.translations --training SOURCES TARGETS

The second form says of training pairs, two files of lines, how many times as long as its source a target is, and how
many targets have a run of tokens three times in a row: by these `max_length_ratio` and `max_repeats` were chosen.
Tokens are those between white space.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analyses.rows import read_rows

_NAME = re.compile(r"[A-Za-z_]\w{5,}")
"""Names of six and more characters: shorter ones are often keywords."""
_LONGEST_RUN_TOKENS, _LEAST_ROUND_TOKENS = 64, 16


def goes_round(tokens: Sequence[str]) -> bool:
    """Whether a run of up to 64 tokens stands three times in a row, 16 tokens at least in all."""
    for length in range(1, _LONGEST_RUN_TOKENS + 1):
        same = 0
        for place in range(length, len(tokens)):
            same = same + 1 if tokens[place] == tokens[place - length] else 0
            if same >= 2 * length and same + length >= _LEAST_ROUND_TOKENS:
                return True
    return False


def shared_names_written(rows: Iterable[Mapping[str, Any]]) -> float:
    """Of the names that a source and its reference share, the share that the written text has; NaN for none."""
    written = shared = 0
    for row in rows:
        names = set(_NAME.findall(row["source"])) & set(_NAME.findall(row["references"][0]))
        shared += len(names)
        written += len(names & set(_NAME.findall(row["written"])))
    return written / shared if shared else float("nan")


def print_predictions(path: Path) -> None:
    """One line for a system."""
    rows = list(read_rows(path))
    empty = sum(not row["written"].strip() for row in rows)
    rounds = sum(goes_round(row["written"].split()) for row in rows)
    print(
        f"{path}: {len(rows)} texts, {empty} empty, {rounds} go round; of the names of six and more characters that "
        f"source and reference share {shared_names_written(rows):.1%} are written"
    )


def print_training(sources: Path, targets: Path) -> None:
    """Of two files of lines."""
    pairs = [
        (source.split(), target.split())
        for source, target in zip(_lines(sources), _lines(targets), strict=True)
        if source.split()
    ]
    ratios = np.array([len(target) / len(source) for source, target in pairs])
    rounds = sum(goes_round(target) for _, target in pairs)
    print(
        f"{len(pairs)} pairs: 99% of the targets have at most {np.quantile(ratios, 0.99):.2f} times their source's "
        f"tokens, 99.9% at most {np.quantile(ratios, 0.999):.2f}; {rounds} targets go round"
    )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path, nargs="*")
    parser.add_argument("--training", type=Path, nargs=2)
    arguments = parser.parse_args()
    for path in arguments.predictions:
        print_predictions(path)
    if arguments.training:
        print_training(*arguments.training)


if __name__ == "__main__":
    main()
