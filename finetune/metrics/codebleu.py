"""CodeBLEU (Ren et al. 2020, arXiv 2009.10297), in percent: the mean of four matches, counted over the corpus.

It follows CodeXGLUE's evaluator (`evaluator/CodeBLEU`), with tokens separated by white space, where that evaluator is
well defined:

- n-grams: NLTK's corpus BLEU with its smoothing 1 and the closest reference's length;
- weighted n-grams: recall of the reference's n-grams, single tokens weighted 1 for keywords and .2 for others,
  without a length penalty (the evaluator has one, but uses 2 as the length of every reference);
- syntax: the share of the reference's subtrees whose shape occurs in the written tree;
- data flow: the share of the reference's flow items that the written program has as well.

It intentionally differs from that evaluator: comments are removed by each language's own grammar (there by Java's rule
for all); data flow does not depend on Python's hash seed (there on the order of a set of names); grammars are newer;
PHP is parsed as PHP; the keywords are those of the specifications. A data flow of 0 counts as 0, unlike in PyPI's
codebleu 0.7.0, which counts it as 1; it is 0 also if no reference has a flow item, as officially: `num_flow_items` of
`codebleu_parts` reports that case. So our scores are not comparable with published ones; docs/metrics.md gives the
differences.

Shapes: N items, S statistics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finetune.languages import grammar_name
from finetune.metrics.bleu import most_of_each, ngrams
from finetune.metrics.dataflow import flow_items
from finetune.metrics.dataflow_grammars import GRAMMARS
from finetune.metrics.keywords import KEYWORDS
from finetune.metrics.measured import FloatArray, Measured
from finetune.metrics.syntax import ShapeNumbers, parse, subtree_shapes
from finetune.metrics.texts import check_texts

CODEBLEU_LANGUAGES = frozenset(GRAMMARS)
"""tree-sitter's names of the supported languages."""

_MAX_ORDER = 4
_OTHER_WEIGHT = 0.2
_NO_MATCH = 0.1
"""The count used if nothing matches (smoothing 1 of Chen and Cherry 2014, as in NLTK)."""


@dataclass(frozen=True)
class CodeBleuParts:
    """The four matches, between 0 and 1."""

    ngram: float
    weighted_ngram: float
    syntax: float
    dataflow: float
    num_flow_items: int
    """The number of flow items of the references; with 0 there is nothing to match, and `dataflow` has no meaning."""


def codebleu(references: Sequence[Sequence[str]], written: Sequence[str], language: str) -> Measured:
    """Return CodeBLEU with equal weights. Raise ValueError if the language is not in CODEBLEU_LANGUAGES."""
    check_texts(references, written)
    language = grammar_name(language)
    if language not in CODEBLEU_LANGUAGES:
        raise ValueError(f"CodeBLEU knows {', '.join(sorted(CODEBLEU_LANGUAGES))}, not {language}")
    rows = [
        _row([text.strip() for text in texts], one.strip(), language)
        for texts, one in zip(references, written, strict=True)
    ]
    return Measured("codebleu", np.array(rows), lambda sums: 100 * _parts(sums).mean(axis=-1))


def codebleu_parts(measured: Measured) -> CodeBleuParts:
    """Return the four matches of a result of `codebleu`."""
    sums = measured.statistics_NS.sum(axis=0)
    ngram, weighted_ngram, syntax, dataflow = (float(part) for part in _parts(sums))
    return CodeBleuParts(ngram, weighted_ngram, syntax, dataflow, int(sums[-1]))


def _row(references: Sequence[str], written: str, language: str) -> list[float]:
    """Return [matches and totals by order; the same weighted; two lengths; syntax hits, total; flow hits, total]."""
    tokens = written.split()
    reference_tokens = [text.split() for text in references]
    closest = min((abs(len(one) - len(tokens)), len(one)) for one in reference_tokens)[1]
    return [
        *_precisions(reference_tokens, tokens),
        *_weighted_recalls(reference_tokens, tokens, KEYWORDS[language]),
        *(len(tokens), closest),
        *_tree_matches(references, written, language),
    ]


def _precisions(references: Sequence[Sequence[str]], written: Sequence[str]) -> list[float]:
    matches, totals = [], []
    for order in range(1, _MAX_ORDER + 1):
        counts = ngrams(written, order)
        matches.append((counts & most_of_each(ngrams(text, order) for text in references)).total())
        totals.append(max(1, counts.total()))
    return [*matches, *totals]


def _weighted_recalls(
    references: Sequence[Sequence[str]], written: Sequence[str], keywords: frozenset[str]
) -> list[float]:
    matches, totals = np.zeros(_MAX_ORDER), np.zeros(_MAX_ORDER)
    for reference in references:
        for order in range(1, _MAX_ORDER + 1):
            wanted = ngrams(reference, order)
            shared = wanted & ngrams(written, order)
            for counts, sums, least in ((shared, matches, 0), (wanted, totals, 1)):
                weighted = sum(
                    count * (_OTHER_WEIGHT if order == 1 and ngram[0] not in keywords else 1)
                    for ngram, count in counts.items()
                )
                sums[order - 1] += max(least, weighted)
    return [*matches, *totals]


def _tree_matches(references: Sequence[str], written: str, language: str) -> list[float]:
    numbers: ShapeNumbers = {}
    root = parse(written, language)
    has_shape = set(subtree_shapes(root, numbers))
    written_items = flow_items(root, language)
    sums = np.zeros(4)
    for reference in references:
        reference_root = parse(reference, language)
        shapes = subtree_shapes(reference_root, numbers)
        items = flow_items(reference_root, language)
        sums += (
            sum(shape in has_shape for shape in shapes),
            len(shapes),
            (items & written_items).total(),
            items.total(),
        )
    return list(sums)


def _parts(sums: FloatArray) -> FloatArray:
    """Return the four matches [..., 4] from sums [..., S]."""
    match, total, weighted_match, weighted_total = np.split(sums[..., : 4 * _MAX_ORDER], 4, axis=-1)
    written_tokens, reference_tokens = sums[..., -6], sums[..., -5]
    penalty = np.where(
        written_tokens > reference_tokens,
        1.0,
        np.exp(1 - np.maximum(reference_tokens, 1) / np.maximum(written_tokens, 1)),
    )
    parts = [
        penalty * _geometric_mean(match, total),
        _geometric_mean(weighted_match, weighted_total),
        sums[..., -4] / np.maximum(sums[..., -3], 1),
        sums[..., -2] / np.maximum(sums[..., -1], 1),
    ]
    return np.stack(parts, axis=-1)


def _geometric_mean(match: FloatArray, total: FloatArray) -> FloatArray:
    """Return the geometric mean over orders of match / total; 0 where not even single tokens match."""
    smoothed = np.where(match == 0, _NO_MATCH, match)
    mean = np.exp(np.log(smoothed / total).mean(axis=-1))
    return np.asarray(np.where(match[..., 0] == 0, 0.0, mean))
