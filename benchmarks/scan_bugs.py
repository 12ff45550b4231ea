"""How fast `permcode scan` is, and how often it finds bugs: `python -m benchmarks.scan_bugs RUN`.

Bugs are made in functions of a held-out split (`finetune/bugs`), one per function. Those are taken that change exactly
one line: a line that was deleted cannot surprise. The lines of the function with the bug are ranked by the surprise of

- the model given the rest of the function, exactly and in the fast form,
- the same model given only what stands before,
- a trigram model of the same tokens, counted on the train split,

all by the bits of a line, and by chance. A bug is found in the top k if fewer than k lines surprise
more; lines that surprise equally share their places. Speed is that of whole held-out documents, the pass from left to
right included, also of random weights in the shape of the recipe `tiny`.
"""

import argparse
import difflib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.model_machine import cpu_name, print_table
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from data_prep.tokenizer import CodeTokenizer
from finetune.bugs.corpus import functions_of_corpus
from finetune.bugs.generator import make_bugs
from finetune.metrics.intervals import compare, estimate
from finetune.metrics.measured import Measured, mean_of
from pipeline.folder.prep_folder import find_prep_folder
from pipeline.folder.recipe import load_run_config
from pretrain.inference.false_alarms import held_out_texts
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.scanned_text import ScannedLine, ScannedText
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed

TOP = (1, 3, 5)
MIN_LINES, MAX_LINES, MAX_CHARACTERS = 6, 60, 4000
TRAIN_TOKENS = 2_000_000
SPEED_TOKENS = 16_384
SEED = 0


@dataclass(frozen=True)
class Item:
    """A function with a bug in one line, counted from 1."""

    kind: str
    text: bytes
    line: int


def buggy_functions(functions: Iterable[str]) -> Iterator[Item]:
    """Yield functions with the first of three bugs that changes exactly one line."""
    for number, code in enumerate(functions):
        num_lines = sum(bool(line.strip()) for line in code.splitlines())
        if not MIN_LINES <= num_lines <= MAX_LINES or len(code) > MAX_CHARACTERS:
            continue
        for bug in make_bugs(code, "python", key_seed(SEED, "scan", number), 3):
            line = changed_line(code, bug.code)
            if line is not None:
                yield Item(bug.kind, bug.code.encode(), line)
                break


def changed_line(before: str, after: str) -> int | None:
    """Return the one line of `after`, counted from 1, in place of one of `before`; None for any other change."""
    matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    if len(changes) != 1:
        return None
    _, first, end, new_first, new_end = changes[0]
    return new_first + 1 if (end - first, new_end - new_first) == (1, 1) else None


class Trigrams:
    """Witten-Bell smoothed counts of up to three tokens (Chen and Goodman 1999, section 2.6)."""

    def __init__(self, documents: Iterable[NDArray[np.integer]], vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._counts: Counter[tuple[int, ...]] = Counter()
        for tokens_T in documents:
            tokens = tokens_T.tolist()
            for length in (1, 2, 3):
                self._counts.update(zip(*(tokens[start:] for start in range(length)), strict=False))
        self._total: Counter[tuple[int, ...]] = Counter()
        self._kinds: Counter[tuple[int, ...]] = Counter()
        for run, count in self._counts.items():
            self._total[run[:-1]] += count
            self._kinds[run[:-1]] += 1

    def log_probabilities(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Return the natural log-probability of every token given the two before it."""
        found = [
            self._probability(tuple(tokens[max(0, place - 2) : place + 1])) for place in range(len(tokens))
        ]
        return np.log(found)

    def _probability(self, run: tuple[int, ...]) -> float:
        shorter = self._probability(run[1:]) if len(run) > 1 else 1.0 / self._vocab_size
        total, kinds = self._total[run[:-1]], self._kinds[run[:-1]]
        return (self._counts[run] + kinds * shorter) / (total + kinds) if total else shorter


def found_in_top(scan: ScannedText, surprises: Sequence[float], line: int) -> list[float]:
    """Return for each of TOP whether the line is among the most surprising; the expectation if it ties with others."""
    values = np.array(surprises)
    places = [place for place, one in enumerate(scan.lines) if one.number == line]
    if not places:
        return [0.0] * len(TOP)
    more, equal = int((values > values[places[0]]).sum()), int((values == values[places[0]]).sum())
    return [min(1.0, max(0, top - more) / equal) for top in TOP]


def train_documents(corpus: PreparedCorpus, num_tokens: int) -> Iterator[NDArray[np.integer]]:
    """Yield documents of the train split with about so many tokens, in the order of the shards."""
    for entry in corpus.blocks("train"):
        block = corpus.read_block(entry)
        for number in range(len(block.docs)):
            tokens_T = np.asarray(block.document_tokens(number))
            yield tokens_T
            num_tokens -= len(tokens_T)
            if num_tokens <= 0:
                return


def judge(model: PermutationLM, corpus: PreparedCorpus, items: Sequence[Item]) -> None:
    """Print how often each system finds the bugs, with intervals and paired differences."""
    texts = [item.text for item in items]
    exact, fast = model.scan(texts), model.scan(texts, fast=True)
    trigrams = Trigrams(train_documents(corpus, TRAIN_TOKENS), model.tokenizer.vocab_size)

    def counted(text: bytes) -> Callable[[ScannedLine], float]:
        row = [model.tokenizer.eod_id, *model.tokenizer.encode_bytes(text).tolist()]
        given_T = trigrams.log_probabilities(row)[1:]
        return lambda line: -float(given_T[line.tokens.start : line.tokens.stop].sum())

    ranked = {
        "given the rest": [[line.surprise_bits for line in scan.lines] for scan in exact],
        "given the rest, fast form": [[line.surprise_bits for line in scan.lines] for scan in fast],
        "given what stands before": [[-line.log_probability_before for line in scan.lines] for scan in exact],
        "trigrams": [
            list(map(counted(item.text), scan.lines)) for item, scan in zip(items, exact, strict=True)
        ],
        "chance": [[0.0] * len(scan.lines) for scan in exact],
    }
    measured: dict[str, list[Measured]] = {}
    for name, surprises in ranked.items():
        found = np.array(
            [
                found_in_top(scan, one, item.line)
                for scan, one, item in zip(exact, surprises, items, strict=True)
            ]
        )
        measured[name] = [mean_of(f"top-{top}", found[:, number]) for number, top in enumerate(TOP)]
    print_table(
        f"{len(items)} functions with a bug in one line",
        ["ranked by", *(f"top-{top}" for top in TOP)],
        [[name, *map(_interval, row)] for name, row in measured.items()],
    )
    print_table(
        "the model given the rest, minus",
        ["ranked by", *(f"top-{top}" for top in TOP)],
        [
            [name, *map(_difference, measured["given the rest"], row)]
            for name, row in measured.items()
            if name != "given the rest"
        ],
    )
    print("kinds:", dict(Counter(item.kind for item in items).most_common()))


def _interval(one: Measured) -> str:
    found = estimate(one, SEED)
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%})"


def _difference(first: Measured, second: Measured) -> str:
    found = compare(first, second, SEED)
    return f"{100 * found.difference:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def rank_correlation(first_N: NDArray[np.float64], second_N: NDArray[np.float64]) -> float:
    """Return Spearman's correlation; ties, which hardly occur, have different ranks."""
    ranks = [np.argsort(np.argsort(one_N)) for one_N in (first_N, second_N)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def measure_speed(name: str, model: PermutationLM, texts: Sequence[bytes], rounds: int) -> None:
    """Print tokens per second of both forms, and how much their rankings agree."""
    wall_s: dict[bool, list[float]] = {False: [], True: []}
    processor_s: dict[bool, list[float]] = {False: [], True: []}
    scans: dict[bool, list[ScannedText]] = {}
    for _ in range(rounds):
        for fast in (False, True):
            begun, begun_processor = time.perf_counter(), time.process_time()
            scans[fast] = model.scan(texts, fast=fast)
            wall_s[fast].append(time.perf_counter() - begun)
            processor_s[fast].append(time.process_time() - begun_processor)
    num_tokens = sum(scan.num_tokens for scan in scans[False])
    surprise = {
        fast: np.array([line.surprise_bits for scan in found for line in scan.lines])
        for fast, found in scans.items()
    }
    print_table(
        f"{name}: {len(texts)} documents, {num_tokens:,} tokens, {len(surprise[False]):,} lines",
        ["form", "tokens/s, median of rounds", "best round", "tokens per processor second"],
        [
            [
                "fast" if fast else "exact",
                f"{num_tokens / np.median(wall_s[fast]):,.0f}",
                f"{num_tokens / min(wall_s[fast]):,.0f}",
                f"{num_tokens / np.median(processor_s[fast]):,.0f}",
            ]
            for fast in scans
        ],
    )
    most = max(1, len(surprise[False]) // 100)
    both = set(np.argsort(-surprise[False])[:most]) & set(np.argsort(-surprise[True])[:most])
    print(f"rank correlation of fast and exact: {rank_correlation(surprise[False], surprise[True]):.4f}")
    print(f"of the {most} most surprising lines (1 %), both forms name {len(both)}")


def random_model(recipe: str, tokenizer: CodeTokenizer) -> PermutationLM:
    """Return a model with the shape of a recipe and random weights."""
    config = load_run_config(recipe, []).pretrain
    torch.manual_seed(SEED)
    network = TwoStreamTransformer(config.model, tokenizer.vocab_size)
    return PermutationLM(network, tokenizer, config.segment_tokens)


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{cpu_name()}, {given.threads} threads")
    model = PermutationLM.from_run(given.run)
    corpus = open_prepared(find_prep_folder(given.run).prep)
    texts = held_out_texts(corpus, SPEED_TOKENS)
    measure_speed(f"{given.run.name}, segments of {model.segment_tokens}", model, texts, given.rounds)
    random = random_model("tiny", model.tokenizer)
    measure_speed(f"random weights, segments of {random.segment_tokens}", random, texts[:6], 1)
    functions = functions_of_corpus(corpus, given.split, "Python", SEED)
    judge(model, corpus, list(islice(buggy_functions(functions), given.items)))


if __name__ == "__main__":
    main()
