"""How well a model finds the lengths of holes itself: `python -m benchmarks.hole_lengths RUN [--humaneval FOLDER]`.

Holes in documents that the run held out, and those of HumanEval-Infilling, are filled greedily, left to right,

- with a length of the model's own choice, as `permcode infill` does without `--length`,
- with a fixed length, as models do that fill a canvas: all holes of a set get the same number of tokens, the one of
  `CANVASES` that is best by the metric on other holes of that set,
- with the given length, that of the text that belongs there.

The other holes are those of the validation split, where the test split's are reported, and in HumanEval-Infilling those
of problems with odd numbers, where the even ones are reported. Holes of more than `MOST_TOKENS` tokens are left out,
and every way knows this limit. The share of the gap is (own - fixed) / (given - fixed); intervals resample documents
or problems, the same for all ways.

Bits are those of the text that belongs there: with its length given, and without, its end included, averaged over the
places that hold it. Under a fixed length nearly all texts are impossible.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz import fuzz

from benchmarks.model_machine import cpu_name, print_table
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from data_prep.tokenizer import CodeTokenizer
from finetune.held_out import HeldOutDocument, held_out_documents
from finetune.metrics.intervals import estimate, resampled
from finetune.metrics.measured import Measured
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import run_many
from finetune.syntax import prose_lines
from finetune.tasks.humaneval_infilling import FILE_NAMES, HoleKind, read_holes
from finetune.tasks.humaneval_problems import Problem, checking_program
from finetune.tasks.infilling import whole_lines
from finetune.tasks.line_completion import cut_lines
from pipeline.folder.prep_folder import find_prep_folder
from pretrain.inference.generation import log_probability
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.infilling import place_lengths
from pretrain.inference.language_model import PermutationLM
from pretrain.randomness import keyed_generator

MOST_TOKENS = 31
"""The longest hole; the places of unknown lengths have 8, 16 and 32 tokens."""
MOST_LINES = 5
PER_DOCUMENT = 4
CANVASES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 31)
LANES = 48
SEED = 0


@dataclass(frozen=True)
class Item:
    """A hole with the text around it, in a document or problem; `problem` can check its filling."""

    unit: str
    before: str
    hole: str
    after: str
    problem: Problem | None = None


Cut = tuple[str, str, str]
"""The text before a hole, in it and after it."""
CutOf = Callable[[HeldOutDocument, np.random.Generator, CodeTokenizer], Cut | None]


def rest_of_a_line(
    document: HeldOutDocument, generator: np.random.Generator, tokenizer: CodeTokenizer
) -> Cut | None:
    """Cut a line of code before a word or sign, but the first; the hole is its rest."""
    text = document.text
    for pair in cut_lines(text, generator, 1, prose_lines(text, "Python")):
        hole = pair.references[0]
        return pair.source, hole, text[len(pair.source) + len(hole) :]
    return None


def some_lines(
    document: HeldOutDocument, generator: np.random.Generator, tokenizer: CodeTokenizer
) -> Cut | None:
    """Cut one to five whole lines, their indentation and last line end included, as HumanEval-Infilling does."""
    text = document.text
    hole = whole_lines(text, generator, prose_lines(text, "Python"), 1, MOST_LINES)
    return (text[: hole[0]], text[slice(*hole)], text[hole[1] :]) if hole else None


def random_span(
    document: HeldOutDocument, generator: np.random.Generator, tokenizer: CodeTokenizer
) -> Cut | None:
    """Cut a random number of tokens at a random place; None if characters would be cut or the hole were blank."""
    size = int(generator.integers(1, MOST_TOKENS + 1))
    if len(document.tokens) <= size + 1:
        return None
    start = int(generator.integers(1, len(document.tokens) - size))
    parts = np.split(document.tokens, [start, start + size])
    before, hole, after = (tokenizer.decode(part) for part in parts)
    is_whole = before + hole + after == document.text
    return (before, hole, after) if is_whole and hole.strip() else None


KINDS: dict[str, CutOf] = {
    "rest of a line": rest_of_a_line,
    "whole lines": some_lines,
    "random span": random_span,
}


def held_out_items(corpus: PreparedCorpus, split: str, cut_of: CutOf) -> Iterator[Item]:
    """Yield several holes of each Python document of a split, round after round, so that a prefix covers all."""
    documents = list(held_out_documents(corpus, split, SEED))
    for turn in range(PER_DOCUMENT):
        for number, document in enumerate(documents):
            cut = cut_of(document, keyed_generator(SEED, f"holes of {split}", turn, number), corpus.tokenizer)
            if cut is not None:
                yield Item(document.name, *cut)


def humaneval_items(folder: Path, kind: HoleKind, *, is_even: bool) -> Iterator[Item]:
    """Yield the holes of the problems with even or odd numbers, in a random order."""
    holes = read_holes(folder, kind)
    for index in keyed_generator(SEED, f"holes of {kind}").permutation(len(holes)):
        one = holes[index].problem
        unit = one.key.split("/")[2]
        if (int(unit) % 2 == 0) == is_even:
            yield Item(unit, one.prompt, one.canonical_solution, holes[index].suffix, one)


class Filler:
    """Fills holes with the model, greedily."""

    def __init__(self, model: PermutationLM) -> None:
        self.model, self._end = model, model.tokenizer.special_id("<end_hole>")

    def tokens(self, item: Item) -> NDArray[np.int64]:
        """Return the tokens of the text that belongs into the hole."""
        return self.model.tokenizer.encode_bytes(item.hole.encode()).astype(np.int64)

    def fits(self, item: Item) -> bool:
        """Whether the hole is not too long."""
        return len(self.tokens(item)) <= MOST_TOKENS

    def fill(self, items: Sequence[Item], length: int | Sequence[int] | None) -> list[str]:
        """Return the fillings, of a length of the model's own choice, a fixed one, or given ones."""
        found = self.model.infill_texts(
            [(one.before, one.after) for one in items],
            length=length,
            max_new_tokens=MOST_TOKENS,
            max_lanes=LANES,
        )
        return [row[0].text for row in found]

    def bits(self, items: Sequence[Item]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bits of each hole's own text, its length given, and with its end if it is not known."""
        given, unknown = [], []
        for item in items:
            tokens_T = self.tokens(item)
            places = [place for place in place_lengths(MOST_TOKENS) if place > len(tokens_T)]
            given.append(self._nats(item, tokens_T, [len(tokens_T)])[0])
            nats = self._nats(item, np.append(tokens_T, self._end), places)
            unknown.append(-float(np.logaddexp.reduce([-one for one in nats]) - math.log(len(nats))))
        return np.array(given) / math.log(2), np.array(unknown) / math.log(2)

    @torch.inference_mode()
    def _nats(self, item: Item, tokens_T: NDArray[np.int64], places: Sequence[int]) -> list[float]:
        sides = Sides(self.model.opened(item.before), self.model.closed(item.after))
        text = Holes(self.model.decoder, [Hole(sides, places)])
        nats_B, logits_BV = torch.zeros(len(places), dtype=torch.float64), text.first()
        for number, token in enumerate(tokens_T.tolist()):
            token_B = torch.full((len(places),), token)
            nats_B -= log_probability(logits_BV, token_B).double()
            if number + 1 < len(tokens_T):
                logits_BV = text.following(token_B)
        return [float(one) for one in nats_B]


def exact_match(item: Item, text: str) -> float:
    """Return 100 if the text is the hole's but for outer white space."""
    return 100.0 * (item.hole.strip() == text.strip())


def edit_similarity(item: Item, text: str) -> float:
    """Return the similarity of the text and the hole's in percent."""
    return float(fuzz.ratio(item.hole.strip(), text.strip()))


METRICS = {"exact match": exact_match, "edit similarity": edit_similarity}


def passed(items: Sequence[Item], texts: Sequence[str]) -> list[float]:
    """Return 100 for each program that passes its tests."""
    programs = [
        checking_program(one.problem, text + one.after)
        for one, text in zip(items, texts, strict=True)
        if one.problem is not None
    ]
    return [100.0 * outcome.passed for outcome in run_many(programs, Limits(), 2)]


def summed(items: Sequence[Item], *values_N: Sequence[float]) -> NDArray[np.float64]:
    """Return for each document or problem the sums of each of the values, and its number of holes."""
    units = {unit: number for number, unit in enumerate(dict.fromkeys(one.unit for one in items))}
    sums_US = np.zeros((len(units), len(values_N) + 1))
    unit_N = [units[one.unit] for one in items]
    np.add.at(sums_US, unit_N, np.stack([*values_N, np.ones(len(items))], axis=1))
    return sums_US


def interval(items: Sequence[Item], value_N: Sequence[float]) -> str:
    """Return the mean with its 95% interval."""
    found = estimate(Measured("", summed(items, value_N), lambda sums: sums[..., 0] / sums[..., 1]), SEED)
    return f"{found.value:.1f} ({found.low:.1f} to {found.high:.1f})"


def closed(items: Sequence[Item], values: Mapping[str, Sequence[float]]) -> str:
    """Return the share of the gap between fixed and given that the own length closes, with its 95% interval."""
    sums_US = summed(items, values["fixed"], values["own"], values["given"])
    measured = Measured(
        "", sums_US, lambda sums: (sums[..., 1] - sums[..., 0]) / (sums[..., 2] - sums[..., 0])
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share, drawn_R = measured.value, resampled(measured, SEED)
    gap = Measured("", sums_US, lambda sums: sums[..., 2] - sums[..., 0])
    if not (resampled(gap, SEED) > 0).mean() > 0.975:
        return "no clear gap"
    low, high = np.percentile(drawn_R, (2.5, 97.5))
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def measure(name: str, filler: Filler, others: Sequence[Item], items: Sequence[Item]) -> None:
    """Fill the holes in the three ways and print a table; canvases are chosen on the `others`."""
    chosen = {canvas: filler.fill(others, canvas) for canvas in CANVASES}
    best = {
        metric: max(CANVASES, key=lambda canvas: np.mean(list(map(value_of, others, chosen[canvas]))))
        for metric, value_of in METRICS.items()
    }
    texts = {canvas: filler.fill(items, canvas) for canvas in sorted(set(best.values()))}
    lengths = [len(filler.tokens(one)) for one in items]
    own, given = filler.fill(items, None), filler.fill(items, lengths)
    rows = []
    for metric, value_of in METRICS.items():
        values = {
            way: list(map(value_of, items, found))
            for way, found in (("fixed", texts[best[metric]]), ("own", own), ("given", given))
        }
        rows.append(row_of(metric, best[metric], items, values))
    if items[0].problem is not None:
        canvas = best["exact match"]
        ways = {"fixed": texts[canvas], "own": own, "given": given}
        rows.append(
            row_of("pass@1", canvas, items, {way: passed(items, found) for way, found in ways.items()})
        )
    num_units = len({one.unit for one in items})
    print_table(
        f"{name}: {len(items)} holes of {num_units} documents or problems, on average {np.mean(lengths):.1f} tokens; "
        f"canvases chosen on {len(others)} other holes",
        ["metric", "canvas", "fixed", "own", "given", "of the gap closed"],
        rows,
    )
    own_tokens = np.array([len(filler.model.tokenizer.encode(text)) for text in own])
    print(
        f"own lengths: {own_tokens.mean():.1f} tokens on average, {np.mean(own_tokens == lengths):.0%} right"
    )
    known, unknown = filler.bits(items)
    print(f"bits per hole: {known.mean():.2f} with its length given, {unknown.mean():.2f} without")


def row_of(
    metric: str, canvas: int, items: Sequence[Item], values: Mapping[str, Sequence[float]]
) -> list[str]:
    """Return the row of a metric."""
    shown = [interval(items, values[way]) for way in ("fixed", "own", "given")]
    return [metric, str(canvas), *shown, closed(items, values)]


def main() -> None:
    """Measure all kinds of holes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--model", type=Path, help="another model than the run's, as of a finetuned system")
    parser.add_argument("--humaneval", type=Path, metavar="FOLDER", help="the files of HumanEval-Infilling")
    parser.add_argument("--holes", type=int, default=300, help="holes of each kind, and others to choose by")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = PermutationLM.from_run(given.model or given.run)
    print(f"{cpu_name()}, {given.threads} threads; segments of {model.segment_tokens}")
    corpus, filler = open_prepared(find_prep_folder(given.run).prep), Filler(model)

    def taken(items: Iterator[Item]) -> list[Item]:
        return list(islice(filter(filler.fits, items), given.holes))

    for name, cut_of in KINDS.items():
        others, items = (taken(held_out_items(corpus, split, cut_of)) for split in ("validation", "test"))
        measure(name, filler, others, items)
    if given.humaneval is not None:
        for kind in FILE_NAMES:
            others, items = (
                taken(humaneval_items(given.humaneval, kind, is_even=is_even)) for is_even in (False, True)
            )
            measure(f"HumanEval, {kind.replace('_', ' ')}", filler, others, items)


if __name__ == "__main__":
    main()
