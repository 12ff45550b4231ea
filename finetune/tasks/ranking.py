"""Shared by the tasks that rank: pools made of pairs, names masked in both, the metrics of search.

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
    """MRR, then recall among the first 1, 5 and 10, over all candidates."""
    return [mrr(pool, score_QC), *(recall_at(pool, score_QC, k) for k in _RECALLS)]


def with_both_sides(pairs: TextPairs, split: str, facts: dict[str, float]) -> list[tuple[str, str]]:
    """The pairs that have both texts; how many have not goes into `facts`."""
    whole = [pair for pair in pairs if pair[0] and pair[1]]
    if len(whole) < len(pairs):
        facts[f"{split}_pairs_with_an_empty_side_left_out"] = len(pairs) - len(whole)
    return whole


def matches_of_pairs(pairs: TextPairs) -> list[Match]:
    """Each pair is a match. Those with an equal query are of one group: what one finds is right for the other."""
    return [Match(query, found, query) for query, found in pairs]


def pool_of_pairs(pairs: TextPairs, name: str) -> Pool:
    """Every query searches what all pairs should find, equal texts once.

    Equal queries find what belongs to either. So pairs that nobody can tell apart once names are masked count as one,
    and there are fewer candidates than pairs. UserError when there is no pair.
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
    """Masks the names of many texts; `unparsed` counts those that did not parse, all of whose words are masked."""

    names: Names
    unparsed: dict[str, float] = field(default_factory=dict)
    published: Published = field(default_factory=Published)
    """Of the test split."""

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
    """Count the test queries, and test candidates, that stand verbatim on the same side of the training pairs."""
    queries, candidates = ({pair[side] for pair in train} for side in (0, 1))
    return {
        "test_queries_in_train": sum(query in queries for query, _ in test),
        "test_candidates_in_train": sum(found in candidates for _, found in test),
    }
