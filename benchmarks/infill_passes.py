"""How many tokens a pass fills of holes in real code, and how fast: `python -m benchmarks.infill_passes RUN`.

Holes in held-out documents of the run, one per document at a random token, filled greedily and by sampling, from left
to right with their length known or not, and by certainty, with several numbers of tokens at a time. The contenders take
turns. Tokens of an unknown length are those of the place that is chosen; its other places are filled, too. How much
faster several tokens at a time are is given with the reading of the text, which comes first, and without it.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.model_machine import cpu_name, print_table
from data_prep.finished.prepared import open_prepared
from pipeline.folder.prep_folder import find_prep_folder
from pretrain.inference.any_order import AnyOrderFilling, fill_any_order
from pretrain.inference.false_alarms import held_out_texts
from pretrain.inference.generation import Generated
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length, fill_unknown_length, place_lengths
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.token_rules import TokenRules
from pretrain.randomness import keyed_generator

AT_ONCE = (1, 2, 3, 4, 8)
TOKENS = 32_768
SAMPLINGS = {"greedy": GREEDY, "temperature 0.8": Sampling(0.8)}
WAYS = ("left to right", "left to right, unknown length", "by certainty")


def holes(model: PermutationLM, texts: list[bytes], length: int) -> list[Sides]:
    """Return the sides of a hole in every text that is longer than a segment."""
    found = []
    for number, text in enumerate(texts):
        row_T = np.insert(model.tokenizer.encode_bytes(text).astype(np.int64), 0, model.tokenizer.eod_id)
        if len(row_T) > model.segment_tokens:
            start = int(keyed_generator(0, "hole", number).integers(1, len(row_T) - length))
            found.append(Sides(row_T[:start], row_T[start + length :]))
    return found


def fill(
    model: PermutationLM, way: str, both: Sides, length: int, sampling: Sampling, at_once: int
) -> tuple[int, int, float]:
    """Fill a hole; return the numbers of its tokens and of the passes, and the log-likelihood."""
    before = model.decoder.num_passes
    found: AnyOrderFilling | Generated
    if way == "by certainty":
        rules = TokenRules.of_hole(None)
        found = fill_any_order(model.decoder, both, length, sampling, rules, at_once=at_once)
    else:
        is_known = way == "left to right"
        rules = TokenRules.of_hole(None if is_known else model.tokenizer.special_id("<end_hole>"))
        function = fill_known_length if is_known else fill_unknown_length
        request = HoleRequest(both, length)
        ((found,),) = function(model.decoder, [request], sampling, rules, at_once=at_once)
    return len(found.tokens), model.decoder.num_passes - before, found.log_likelihood


def read(model: PermutationLM, way: str, both: Sides, length: int) -> None:
    """Read a text as `fill` reads it."""
    places = place_lengths(length) if way == "left to right, unknown length" else [length]
    Holes(model.decoder, [Hole(both, places)])


@dataclass
class Total:
    """Sums over the holes."""

    seconds: float = 0.0
    num_passes: int = 0
    num_tokens: int = 0
    nats: float = 0.0


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
    ways = [(way, name, at_once) for way in WAYS for name in SAMPLINGS for at_once in AT_ONCE]
    totals = {contender: Total() for contender in ways}
    reading_s = dict.fromkeys(WAYS, 0.0)
    for both in sides:
        for way in WAYS:
            begun = time.process_time()
            read(model, way, both, given.length)
            reading_s[way] += time.process_time() - begun
        for contender, total in totals.items():
            way, name, at_once = contender
            begun = time.process_time()
            written, passes, log_likelihood = fill(model, way, both, given.length, SAMPLINGS[name], at_once)
            total.seconds += time.process_time() - begun
            total.num_passes += passes
            total.num_tokens += written
            total.nats -= log_likelihood
    print_table(
        f"{cpu_name()}, {given.threads} threads: {len(sides)} holes of {given.length} tokens",
        [
            "order",
            "sampling",
            "at once",
            "tokens per pass",
            "nats per token",
            "times as fast",
            "with reading",
        ],
        [row(totals, reading_s, contender) for contender in ways],
    )


def row(
    totals: dict[tuple[str, str, int], Total], reading_s: dict[str, float], contender: tuple[str, str, int]
) -> list[str]:
    """Return a row of the table; speeds are tokens per second compared with one at a time."""
    way, name, at_once = contender
    own, alone = totals[contender], totals[way, name, 1]
    faster = own.num_tokens / alone.num_tokens
    without = (alone.seconds - reading_s[way]) / (own.seconds - reading_s[way])
    return [
        way,
        name,
        str(at_once),
        f"{own.num_tokens / own.num_passes:.2f}",
        f"{own.nats / own.num_tokens:.2f}",
        f"{faster * without:.2f}x",
        f"{faster * alone.seconds / own.seconds:.2f}x",
    ]


if __name__ == "__main__":
    main()
