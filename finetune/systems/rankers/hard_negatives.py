"""Negatives that look like what is to be found: BM25's best wrong candidates.

Shapes: Q queries, C candidates.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from finetune.modalities.ranking import Match
from finetune.systems.rankers.bm25 import Bm25

_SPARE = 4
"""Mined per negative wanted, so that every draw gives others."""


def with_hard_negatives(matches: Sequence[Match], wanted: int) -> list[Match]:
    """Matches that name no hard negatives get up to `4 * wanted` of them; the others stay as they are.

    They come from what other matches find, are of another group, and have another text than what should be found.
    """
    if all(match.hard_negatives for match in matches):
        return list(matches)
    texts = list(dict.fromkeys(match.found for match in matches))
    groups_of: dict[str, set[str]] = {}
    for match in matches:
        groups_of.setdefault(match.found, set()).add(match.group)
    index, mined = Bm25(texts), []
    numbered = iter(matches)
    for score_QC in index.scores([match.query for match in matches]):
        for score_C in score_QC:
            match = next(numbered)
            if match.hard_negatives:
                mined.append(match)
                continue
            best = np.argsort(-score_C, kind="stable")
            negatives: list[str] = []
            for number in best:
                if match.group not in groups_of[texts[number]] and texts[number] != match.found:
                    negatives.append(texts[number])
                if len(negatives) == _SPARE * wanted:
                    break
            mined.append(replace(match, hard_negatives=tuple(negatives)))
    return mined
