"""Compare the models that `benchmarks.objectives_train` made: `python -m benchmarks.objectives RUN OUT`.

All answer the same items of RUN's test split, greedily:

- holes: the rest of a line, and one to five whole lines, with the length given and with one of the model's own choice;
- two holes of the same document together, with both lengths given;
- completion of the rest of a line from what stands before it;
- bugs in one line of a function, searched by the surprise of each line given the rest (`benchmarks.scan_bugs`).

A causal model reads the text before and after a hole from left to right, then predicts the hole, as it was trained.
Bits per byte are those of the validation split that the training ended with. Every value is the mean over the seeds; in
parentheses are the lowest and the highest seed. A second table has the differences from the autoregressive model, each
item's mean over the seeds, with 95 % intervals of resampled items.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.hole_lengths import KINDS, Filler, Item, edit_similarity, exact_match, held_out_items
from benchmarks.model_machine import cpu_name, print_table
from benchmarks.objectives_train import OBJECTIVES, model_folder
from benchmarks.scan_bugs import TOP, buggy_functions, found_in_top
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from finetune.bugs.corpus import functions_of_corpus
from finetune.metrics.intervals import compare
from finetune.metrics.measured import mean_of
from pipeline.folder.prep_folder import find_prep_folder
from pretrain.files import PretrainFiles
from pretrain.inference.language_model import PermutationLM

HOLES, BUGS, SEED = 300, 300, 0
COMPLETION_TOKENS = 31
CONDITIONS = {
    "left_to_right": "bits per byte, left to right",
    "any_order": "bits per byte, any order",
    "infill": "bits per byte, holes",
}

Values = dict[str, list[float]]
"""The value of every item, by the name in the table; or the only value of a model."""


def bits_per_byte(folder: Path) -> Values:
    """Return the final figures of the validation split, with memory."""
    result: dict[str, Any] = json.loads((folder / PretrainFiles.RESULT).read_text())
    return {
        CONDITIONS[row["order"]]: [row["bits_per_byte"]]
        for row in result["validation"]["table"]
        if row["language"] is None and row["with_memory"]
    }


def compared(name: str, items: Sequence[Item], texts: Sequence[str]) -> Values:
    """Return both metrics of answers."""
    return {
        f"{name}, exact match": list(map(exact_match, items, texts)),
        f"{name}, edit similarity": list(map(edit_similarity, items, texts)),
    }


def filled(filler: Filler, name: str, items: Sequence[Item]) -> Values:
    """Fill holes with and without their lengths, and time each token of those with them."""
    lengths = [len(filler.tokens(one)) for one in items]
    begun = time.process_time()
    given = filler.fill(items, lengths)
    spent_s = time.process_time() - begun
    return {
        **compared(f"{name}, length given", items, given),
        **compared(f"{name}, own length", items, filler.fill(items, None)),
        f"{name}, ms per token": [1000 * spent_s / sum(lengths)],
    }


def filled_in_pairs(filler: Filler, items: Sequence[Item]) -> Values:
    """Fill two holes of the same document together, where both fit a segment; both must be right."""
    matches, similarities = [], []
    for one, other in pairs(items):
        middle = one.after[: len(one.after) - len(other.hole) - len(other.after)]
        lengths = [len(filler.tokens(hole)) for hole in (one, other)]
        between = len(filler.model.tokenizer.encode(middle))
        if sum(lengths) + between >= filler.model.segment_tokens // 2:
            continue
        found = filler.model.infill_holes([one.before, middle, other.after], length=lengths)
        texts = [hole.text for hole in found.holes]
        matches.append(min(exact_match(one, texts[0]), exact_match(other, texts[1])))
        similarities.append((edit_similarity(one, texts[0]) + edit_similarity(other, texts[1])) / 2)
    return {"two holes, both exact": matches, "two holes, edit similarity": similarities}


def pairs(items: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Return the items of each document that lie apart, in the order of the text, two by two."""
    found: list[tuple[Item, Item]] = []
    waiting: dict[str, Item] = {}
    for item in sorted(items, key=lambda one: (one.unit, len(one.before))):
        earlier = waiting.pop(item.unit, None)
        if earlier is not None and len(earlier.before) + len(earlier.hole) < len(item.before):
            found.append((earlier, item))
        else:
            waiting[item.unit] = item
    return found


def completed(model: PermutationLM, items: Sequence[Item]) -> Values:
    """Complete the rest of a line, up to its end."""
    begun = time.process_time()
    found = model.complete([one.before for one in items], max_new_tokens=COMPLETION_TOKENS, stop="\n")
    spent_s = time.process_time() - begun
    num_tokens = sum(one.num_tokens for one in found)
    return {
        **compared("completion of a line", items, [one.text for one in found]),
        "completion, ms per token": [1000 * spent_s / max(1, num_tokens)],
    }


def scanned(model: PermutationLM, corpus: PreparedCorpus) -> Values:
    """Search bugs by the surprise of each line given the rest."""
    functions = functions_of_corpus(corpus, "test", "Python", SEED)
    bugs = list(islice(buggy_functions(functions), BUGS))
    scans = model.scan([bug.text for bug in bugs])
    found = np.array(
        [
            found_in_top(scan, [line.surprise_bits for line in scan.lines], bug.line)
            for scan, bug in zip(scans, bugs, strict=True)
        ]
    )
    return {f"bugs in the top {top}": (100 * found[:, number]).tolist() for number, top in enumerate(TOP)}


def evaluate(folder: Path, corpus: PreparedCorpus, kinds: dict[str, list[Item]]) -> Values:
    """Return all values of a model; what was measured before is read from its folder."""
    path = folder / "objectives.json"
    if not path.exists():
        filler = Filler(PermutationLM.from_run(folder, device="cpu"))
        rest = kinds["rest of a line"]
        values = bits_per_byte(folder) | completed(filler.model, rest)
        for name, items in kinds.items():
            values |= filled(filler, name, items)
        # All rests of lines, so that there are pairs that lie close to each other.
        rests = list(held_out_items(corpus, "test", KINDS["rest of a line"]))
        values |= filled_in_pairs(filler, rests) | scanned(filler.model, corpus)
        path.write_text(json.dumps(values))
    found: Values = json.loads(path.read_text())
    return found


def shown(key: str, of_seeds: Sequence[Sequence[float]]) -> str:
    """Return the mean over seeds, with the lowest and highest."""
    means = [float(np.mean(one)) for one in of_seeds]
    digits = 3 if "bits" in key else 2 if "ms per token" in key else 1
    return f"{np.mean(means):.{digits}f} ({min(means):.{digits}f} to {max(means):.{digits}f})"


def difference(own: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> str:
    """Return the mean difference of items, averaged over seeds, with its interval."""
    found = compare(mean_of("", np.mean(own, axis=0)), mean_of("", np.mean(other, axis=0)), SEED)
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def main() -> None:
    """Evaluate all models and print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    corpus = open_prepared(find_prep_folder(given.run).prep)
    names = [name for name in OBJECTIVES if model_folder(given.out, name, 0).is_dir()]
    fits: Callable[[Item], bool] = Filler(
        PermutationLM.from_run(model_folder(given.out, names[0], 0), device="cpu")
    ).fits
    kinds = {
        name: list(islice(filter(fits, held_out_items(corpus, "test", KINDS[name])), HOLES))
        for name in ("rest of a line", "whole lines")
    }
    values = {
        name: [evaluate(model_folder(given.out, name, seed), corpus, kinds) for seed in range(given.seeds)]
        for name in names
    }
    first = values[names[0]]
    print_table(
        f"{cpu_name()}, {given.threads} threads, {given.seeds} seeds",
        ["", *names],
        [[key, *(shown(key, [one[key] for one in values[name]]) for name in names)] for key in first[0]],
    )
    print_table(
        f"minus {names[0]}",
        ["", *names[1:]],
        [
            [
                key,
                *(
                    difference([one[key] for one in values[name]], [one[key] for one in first])
                    for name in names[1:]
                ),
            ]
            for key in first[0]
            if len(first[0][key]) > 1
        ],
    )


if __name__ == "__main__":
    main()
