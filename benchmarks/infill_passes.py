"""How many tokens a pass fills of holes in real code, and how fast: `python -m benchmarks.infill_passes RUN`.

Holes of a known length in held-out documents of the run, one per document at a random token, filled greedily and by
sampling, from left to right and by certainty, with several numbers of proposals at a time. The contenders take turns.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.model_machine import cpu_name, print_table
from data_prep.finished.prepared import open_prepared
from pipeline.folder.prep_folder import find_prep_folder
from pretrain.inference.any_order import FillingOrder, fill_any_order
from pretrain.inference.false_alarms import held_out_texts
from pretrain.inference.hole import Sides
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.token_rules import TokenRules, specials_but
from pretrain.randomness import keyed_generator

AT_ONCE = (1, 2, 4, 8)
TOKENS = 32_768
SAMPLINGS = {"greedy": GREEDY, "temperature 0.8": Sampling(0.8)}
ORDERS: tuple[FillingOrder, ...] = ("left_to_right", "most_certain")


def holes(model: PermutationLM, texts: list[bytes], length: int) -> list[Sides]:
    """Return the sides of a hole in every text that is longer than a segment."""
    found = []
    for number, text in enumerate(texts):
        row_T = np.insert(model.tokenizer.encode_bytes(text).astype(np.int64), 0, model.tokenizer.eod_id)
        if len(row_T) > model.segment_tokens:
            start = int(keyed_generator(0, "hole", number).integers(1, len(row_T) - length))
            found.append(Sides(row_T[:start], row_T[start + length :]))
    return found


def main() -> None:
    """Fill the holes in every way and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = PermutationLM.from_run(given.run)
    sides = holes(
        model, held_out_texts(open_prepared(find_prep_folder(given.run).prep), TOKENS), given.length
    )
    rules = TokenRules(specials_but(None))
    ways = [(order, name, at_once) for order in ORDERS for name in SAMPLINGS for at_once in AT_ONCE]
    seconds = dict.fromkeys(ways, 0.0)
    num_passes = dict.fromkeys(ways, 0)
    for both in sides:
        for way in ways:
            order, name, at_once = way
            begun = time.process_time()
            found = fill_any_order(
                model.decoder, both, given.length, SAMPLINGS[name], rules, at_once=at_once, order=order
            )
            seconds[way] += time.process_time() - begun
            num_passes[way] += found.num_passes
    num_tokens = given.length * len(sides)
    print_table(
        f"{cpu_name()}, {given.threads} threads: {len(sides)} holes of {given.length} tokens",
        ["order", "sampling", "at once", "tokens per pass", "tokens per processor second", "times as fast"],
        [
            [
                order,
                name,
                str(at_once),
                f"{num_tokens / num_passes[order, name, at_once]:.2f}",
                f"{num_tokens / seconds[order, name, at_once]:,.0f}",
                f"{seconds[order, name, 1] / seconds[order, name, at_once]:.2f}x",
            ]
            for order, name, at_once in ways
        ],
    )


if __name__ == "__main__":
    main()
