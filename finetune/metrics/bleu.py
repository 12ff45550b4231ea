"""The two variants of BLEU that CodeXGLUE's evaluators compute, in percent; every task uses that of its evaluator.

BLEU (Papineni et al. 2002) is the geometric mean of n-gram precisions times a penalty for short texts. The variants
differ in tokenization, smoothing and averaging, by many points: scores of different variants cannot be compared.

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
    """Return the count of each n-gram of `order` tokens."""
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def most_of_each(counts: Iterable[Counter[NGram]]) -> Counter[NGram]:
    """Return the union of the counts: for each n-gram its maximum count."""
    union: Counter[NGram] = Counter()
    for one in counts:
        union |= one
    return union


MAX_ORDER = 4


def codexglue_bleu(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Return the corpus BLEU-4 of CodeXGLUE's translation, refinement and text-to-code (their `evaluator/bleu.py`).

    Tokens are separated by white space; 1 is added to the matches and totals of all orders, the first included; an
    item's reference length is that of its shortest reference. Texts without any token score 0; for these, the official
    script fails with a division by zero.
    """
    check_texts(references, written)
    rows = [
        _corpus_row([text.split() for text in texts], one.split())
        for texts, one in zip(references, written, strict=True)
    ]
    return Measured("bleu", np.array(rows, dtype=np.float64), _corpus_bleu)


def _corpus_row(references: Sequence[Sequence[str]], written: Sequence[str]) -> list[int]:
    """Return the matches by order, the n-grams by order, and the reference length."""
    matches, totals = _matches(references, written)
    return [*matches, *totals, min(map(len, references))]


def _matches(references: Sequence[Sequence[str]], written: Sequence[str]) -> tuple[list[int], list[int]]:
    """Count by order the n-grams of `written` that also occur in a reference, and all its n-grams."""
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
    """Return the mean smoothed sentence BLEU-4 of CodeXGLUE's code-to-text (its `evaluator/evaluator.py`).

    Texts are lower-cased, punctuation is split off, and the result is normalised as by NIST's mteval-v11a. 1 is added
    to the matches and totals of orders above the first; the penalty is exp(1 - (reference + 1) / (written + 1)), with
    the shortest reference's length (Lin and Och 2004, as in MOSES). As in the official script, the score of a text
    without tokens is the penalty alone: .7 for a reference of five tokens. That script reads a prediction only up to
    its first tab; here the whole text is scored.
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
        # As in the official script, the score of an empty text is the penalty alone.
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
    """Tokenize a summary as the code-to-text evaluator does: in lower case, each punctuation mark a token."""
    text = " ".join(_WORD_OR_MARK.findall(text.strip().lower()))
    # The rules below are NIST's; after the line above, only few of them still match anything.
    text = f" {text} "
    text = _MARK.sub(r" \1 ", text)
    text = _POINT_AFTER_NO_DIGIT.sub(r"\1 \2 ", text)
    text = _POINT_BEFORE_NO_DIGIT.sub(r" \1 \2", text)
    return _DASH_AFTER_DIGIT.sub(r"\1 \2 ", text).split()
