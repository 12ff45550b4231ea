"""Count which kinds of bug are found, and how often a sound function is labelled defective.

    python -m benchmarks.analyses.defects OUT/defect-KEY/*/seed-0/predictions.jsonl
    python -m benchmarks.analyses.defects --likelihood MODEL OUT/defect-KEY/SYSTEM/seed-0/predictions.jsonl

For bugs that were generated in a corpus, whose items are named after their kind. `--likelihood` scores the functions of
those rows with a model without finetuning, and prints the area under the ROC curve of its likelihood per token as a
classifier of sound and defective functions.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sklearn.metrics import roc_auc_score

from benchmarks.analyses.rows import read_rows
from pretrain.inference.language_model import PermutationLM

_DEFECTIVE = 1


def found_by_kind(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return (found, all) by kind of bug; "sound" has (labelled defective, all) for the sound functions."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        kind = _kind(str(row["key"])) if row["label"] == _DEFECTIVE else "sound"
        found[kind][0] += row["given"] == _DEFECTIVE
        found[kind][1] += 1
    return {kind: (hits, number) for kind, (hits, number) in sorted(found.items())}


def _kind(key: str) -> str:
    """Return the kind in a key: wrong_operator in test-12-wrong_operator-bug."""
    return key.split("-")[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path, nargs="+")
    parser.add_argument("--likelihood", type=Path)
    arguments = parser.parse_args()
    model = PermutationLM.from_run(arguments.likelihood) if arguments.likelihood else None
    for path in arguments.predictions:
        rows = list(read_rows(path))
        print(path)
        for kind, (hits, number) in found_by_kind(rows).items():
            print(f"  {kind:24} {hits} of {number} called defective ({hits / number:.0%})")
        if model is not None:
            per_token = [
                float(one.scores.log_probability_P.mean())
                for one in model.score([row["texts"][0] for row in rows])
            ]
            area = roc_auc_score([row["label"] != _DEFECTIVE for row in rows], per_token)
            print(f"  likelihood per token: area under the curve {area:.3f}")


if __name__ == "__main__":
    main()
