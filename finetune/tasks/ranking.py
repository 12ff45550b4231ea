"""Shared code of the ranking tasks: pools built from pairs, masking of names in both sides, search metrics.

Shapes: Q queries, C candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.formats.names import Names, masked
from finetune.metrics.measured import Measured
from finetune.metrics.ranking import mrr, recall_at
from finetune.modalities.ranking import Match, Pool
from finetune.tasks.published import Published

TextPairs = Sequence[tuple[str, str]]
_RECALLS = (1, 5, 10)


def search_metrics(pool: Pool, score_QC: NDArray[np.float64]) -> list[Measured]:
    """Return MRR, then recall at 1, 5 and 10, over all candidates."""
    return [mrr(pool, score_QC), *(recall_at(pool, score_QC, k) for k in _RECALLS)]


def with_both_sides(pairs: TextPairs, split: str, facts: dict[str, float]) -> list[tuple[str, str]]:
    """Return the pairs that have both texts; count the others in `facts`."""
    whole = [pair for pair in pairs if pair[0] and pair[1]]
    if len(whole) < len(pairs):
        facts[f"{split}_pairs_with_an_empty_side_left_out"] = len(pairs) - len(whole)
    return whole


def matches_of_pairs(pairs: TextPairs) -> list[Match]:
    """Return each pair as a match. Equal queries form a group, because the candidate of one is right for the others."""
    return [Match(query, found, query) for query, found in pairs]


def pool_of_pairs(pairs: TextPairs, name: str) -> Pool:
    """Build a pool in which every query searches the distinct second texts of all pairs.

    The relevant candidates of a query are those of all equal queries. So pairs that are equal after names are masked
    count as one candidate, and there may be fewer candidates than pairs. Raise UserError if there is no pair.
    """
    if not pairs:
        raise UserError(f"the {name} split is empty: there is nothing to search")
    candidates = list(dict.fromkeys(found for _, found in pairs))
    number_of = {text: number for number, text in enumerate(candidates)}
    relevant: dict[str, set[int]] = {}
    for query, found in pairs:
        relevant.setdefault(query, set()).add(number_of[found])
    return Pool(
        query_keys=[f"{name}-{number}" for number in range(1, len(pairs) + 1)],
        queries=[query for query, _ in pairs],
        candidates=candidates,
        relevant=[tuple(sorted(relevant[query])) for query, _ in pairs],
    )


@dataclass
class Masking:
    """A masker of names; `unparsed` counts the texts that did not parse, in which every word is masked."""

    names: Names
    unparsed: dict[str, float] = field(default_factory=dict)
    published: Published = field(default_factory=Published)
    """The originals of the masked texts of the test split."""

    def text(self, code: str, language: str, split: str) -> str:
        """Mask one text."""
        text, parsed = masked(code, language, self.names)
        if not parsed:
            fact = f"{split}_masked_unparsed"
            self.unparsed[fact] = self.unparsed.get(fact, 0) + 1
        return self.published.note(text, code) if split == "test" else text

    def pairs(self, pairs: TextPairs, languages: tuple[str, str], split: str) -> list[tuple[str, str]]:
        """Mask both sides of all pairs."""
        return [
            (self.text(first, languages[0], split), self.text(second, languages[1], split))
            for first, second in pairs
        ]


def leaks(train: TextPairs, test: TextPairs) -> dict[str, float]:
    """Count the test queries, and the test candidates, that occur verbatim on the same side of the training pairs."""
    queries, candidates = ({pair[side] for pair in train} for side in (0, 1))
    return {
        "test_queries_in_train": sum(query in queries for query, _ in test),
        "test_candidates_in_train": sum(found in candidates for _, found in test),
    }
