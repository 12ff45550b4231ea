"""BLEU as CodeXGLUE's evaluators count it, in percent; each of its tasks names which of the two it uses.

BLEU (Papineni et al. 2002) is the geometric mean of n-gram precisions times a penalty for short texts. The variants
differ in tokens, smoothing and in what is averaged, by many points: numbers of different variants cannot be compared.

Shapes: N items, S statistics.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from finetune.metrics.measured import FloatArray, Measured, mean_of
from finetune.metrics.texts import check_texts

NGram = tuple[str, ...]


def ngrams(tokens: Sequence[str], order: int) -> Counter[NGram]:
    """Return how often each run of `order` tokens occurs."""
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def most_of_each(counts: Iterable[Counter[NGram]]) -> Counter[NGram]:
    """The union: of each n-gram the most that any of the counts holds."""
    union: Counter[NGram] = Counter()
    for one in counts:
        union |= one
    return union


MAX_ORDER = 4


def codexglue_bleu(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Corpus BLEU-4 of CodeXGLUE's translation, refinement and text-to-code (`evaluator/bleu.py` there).

    Tokens are what white space separates; one is added to matches and totals of all orders, the first included; an
    item's reference length is that of its shortest reference. Texts without any token score 0, where the official
    script ends with a division by zero.
    """
    check_texts(references, written)
    rows = [
        _corpus_row([text.split() for text in texts], one.split())
        for texts, one in zip(references, written, strict=True)
    ]
    return Measured("bleu", np.array(rows, dtype=np.float64), _corpus_bleu)


def _corpus_row(references: Sequence[Sequence[str]], written: Sequence[str]) -> list[int]:
    """Matches by order, n-grams by order, and the reference length."""
    matches, totals = _matches(references, written)
    return [*matches, *totals, min(map(len, references))]


def _matches(references: Sequence[Sequence[str]], written: Sequence[str]) -> tuple[list[int], list[int]]:
    """Count by order the n-grams of `written` that a reference has too, and all of them."""
    matches = []
    for order in range(1, MAX_ORDER + 1):
        wanted = most_of_each(ngrams(reference, order) for reference in references)
        matches.append((ngrams(written, order) & wanted).total())
    return matches, [max(0, len(written) - order + 1) for order in range(1, MAX_ORDER + 1)]


def _corpus_bleu(sums: FloatArray) -> FloatArray:
    match, total = sums[..., :MAX_ORDER], sums[..., MAX_ORDER : 2 * MAX_ORDER]
    written_tokens, reference_tokens = sums[..., MAX_ORDER], sums[..., -1]
    mean_log_precision = np.log((match + 1) / (total + 1)).mean(axis=-1)
    shortfall = reference_tokens / np.maximum(written_tokens, 1.0)
    log_penalty = np.minimum(0.0, 1.0 - shortfall)
    return np.asarray(100 * np.exp(mean_log_precision + log_penalty) * (written_tokens > 0))


def summary_bleu(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Mean over items of the smoothed sentence BLEU-4 of CodeXGLUE's code-to-text (`evaluator/evaluator.py` there).

    Texts are lower-cased, punctuation is split off, then normalised as NIST's mteval-v11a does. One is added to
    matches and totals of orders above the first; the penalty is exp(1 - (reference + 1) / (written + 1)) with the
    shortest reference's length (Lin and Och 2004, as in MOSES). As there, a text without tokens has no precision and
    scores its penalty alone: .7 against a reference of five tokens. In a prediction file only the text up to the first
    tab counts there; here a text is what is given.
    """
    check_texts(references, written)
    values = [
        100 * _sentence_bleu([summary_tokens(text) for text in texts], summary_tokens(one))
        for texts, one in zip(references, written, strict=True)
    ]
    return mean_of("summary_bleu", np.array(values))


def _sentence_bleu(references: Sequence[Sequence[str]], written: Sequence[str]) -> float:
    matches, totals = _matches(references, written)
    if not written:
        # None of no tokens is wrong: the official script lets the penalty alone speak.
        return math.exp(-min(map(len, references)))
    if matches[0] == 0:
        return 0.0
    log_precisions = [
        math.log(match + (order > 0)) - math.log(total + (order > 0))
        for order, (match, total) in enumerate(zip(matches, totals, strict=True))
    ]
    log_penalty = min(0.0, 1.0 - (min(map(len, references)) + 1) / (len(written) + 1))
    return math.exp(sum(log_precisions) / MAX_ORDER + log_penalty)


_WORD_OR_MARK = re.compile(r"\w+|[^\s\w]")
_MARK = re.compile(r"([{-~\[-` -&(-+:-@/])")
_POINT_AFTER_NO_DIGIT = re.compile(r"([^0-9])([.,])")
_POINT_BEFORE_NO_DIGIT = re.compile(r"([.,])([^0-9])")
_DASH_AFTER_DIGIT = re.compile(r"([0-9])(-)")


def summary_tokens(text: str) -> list[str]:
    """A summary's tokens: lower case, each punctuation mark by itself, as the code-to-text evaluator sees them."""
    text = " ".join(_WORD_OR_MARK.findall(text.strip().lower()))
    # What follows is NIST's; after the line above only few of its rules still find something to do.
    text = f" {text} "
    text = _MARK.sub(r" \1 ", text)
    text = _POINT_AFTER_NO_DIGIT.sub(r"\1 \2 ", text)
    text = _POINT_BEFORE_NO_DIGIT.sub(r" \1 \2", text)
    return _DASH_AFTER_DIGIT.sub(r"\1 \2 ", text).split()
