"""Count the faults of written texts compared with their references: empty texts, loops, names that were not copied.

    python -m benchmarks.analyses.translations OUT/translation-KEY/*/seed-0/predictions.jsonl
    python -m benchmarks.analyses.translations --training SOURCES TARGETS [--tokenizer RUN/prep-KEY/tokenizer.json]

The second form reports for training pairs, two files of lines, the ratio of a target's length to its source's, and how
many targets could not be written with `max_repeats: 2`: `max_length_ratio` and `max_repeats` were chosen by these
figures. Tokens are the tokenizer's, or split at white space.
"""

import argparse
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analyses.rows import read_rows
from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.token_rules import continuing_a_loop

_NAME = re.compile(r"[A-Za-z_]\w{5,}")
"""Names of six or more characters: shorter ones are often keywords."""


def goes_round(tokens: Sequence[Hashable], max_repeats: int = 2) -> bool:
    """Return whether decoding with `max_repeats` would reject one of the tokens because it continues a loop."""
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    text = [numbers[token] for token in tokens]
    return any(text[end] in continuing_a_loop(text[:end], max_repeats) for end in range(1, len(text)))


def shared_names_written(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return the share of names common to source and reference that the written text has; NaN if there are none."""
    written = shared = 0
    for row in rows:
        names = set(_NAME.findall(row["source"])) & set(_NAME.findall(row["references"][0]))
        shared += len(names)
        written += len(names & set(_NAME.findall(row["written"])))
    return written / shared if shared else float("nan")


def print_predictions(path: Path) -> None:
    """Print one line for a system's predictions."""
    rows = list(read_rows(path))
    empty = sum(not row["written"].strip() for row in rows)
    rounds = sum(goes_round(row["written"].split()) for row in rows)
    print(
        f"{path}: {len(rows)} texts, {empty} empty, {rounds} go round; of the names of six and more characters that "
        f"source and reference share {shared_names_written(rows):.1%} are written"
    )


def print_training(sources: Path, targets: Path, tokenizer: Path | None) -> None:
    """Print length ratios and looping targets of the training pairs in two files of lines."""
    loaded = None if tokenizer is None else CodeTokenizer.load(tokenizer)

    def tokens_of(text: str) -> Sequence[Hashable]:
        return text.split() if loaded is None else loaded.encode(text).tolist()

    pairs = [
        (tokens_of(source), tokens_of(target))
        for source, target in zip(_lines(sources), _lines(targets), strict=True)
        if source.strip()
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
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    for path in arguments.predictions:
        print_predictions(path)
    if arguments.training:
        print_training(*arguments.training, arguments.tokenizer)


if __name__ == "__main__":
    main()
