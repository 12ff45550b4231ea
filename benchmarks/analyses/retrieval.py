"""Compute MRR with equal queries counted once, and the highest MAP@R that is possible with equal candidates.

    python -m benchmarks.analyses.retrieval OUT/code_search-KEY/*/seed-*/predictions.jsonl
    python -m benchmarks.analyses.retrieval --symmetric OUT/clone_retrieval-KEY/*/seed-0/predictions.jsonl

Functions that differ only in names are equal texts after names are masked. `--symmetric` is for sets whose queries are
also the candidates, in the same order, with one right candidate each: it prints the highest MAP@R that any system can
have, because ties count against a system.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analyses.rows import read_rows

Rows = Sequence[Mapping[str, Any]]


def distinct_mrr(rows: Rows) -> tuple[float, int]:
    """Return the MRR with every distinct query counted once (the mean over its copies), and their number."""
    reciprocals: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        reciprocals[row["query"]].append(1 / min(row["ranks"]))
    return float(np.mean([np.mean(values) for values in reciprocals.values()])), len(reciprocals)


def highest_map_at_r(rows: Rows) -> float:
    """Return the MAP@R of a system that ranks every program's one partner first, unless texts are equal.

    A partner with the same text as a wrong candidate is ranked after it. Raises ValueError if a program has several
    partners: their best ranking depends on the order of all of them.
    """
    copies = Counter(row["query"] for row in rows)
    found = []
    for row in rows:
        if len(row["relevant"]) != 1:
            raise ValueError("the highest MAP@R is known only where every program has one partner")
        text = rows[row["relevant"][0]]["query"]
        # All copies except the partner and the query itself are wrong candidates.
        found.append(copies[text] == 1 + (row["query"] == text))
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path, nargs="+")
    parser.add_argument("--symmetric", action="store_true")
    arguments = parser.parse_args()
    for path in arguments.predictions:
        rows = list(read_rows(path))
        mrr = float(np.mean([1 / min(row["ranks"]) for row in rows]))
        distinct, num_distinct = distinct_mrr(rows)
        print(f"{path}: MRR {mrr:.4f} of {len(rows)} queries, {distinct:.4f} of {num_distinct} distinct ones")
        if arguments.symmetric:
            try:
                print(f"  MAP@R is at most {highest_map_at_r(rows):.4f} for anyone")
            except ValueError as error:
                raise SystemExit(f"{path}: {error}") from None


if __name__ == "__main__":
    main()
