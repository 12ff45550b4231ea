"""The decision on every row of the corpus, while the driver applies its rules."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.rows import Corpus
from data_prep.documents import Rejection
from data_prep.finished.forget_requests import FORGOTTEN_RULE, ForgetRequests


@dataclass(frozen=True)
class Decisions:
    """The decision on every row of the corpus.

    For each row: the rule that drops it (None: kept so far), its value (NaN: none) and detail, the row that it
    duplicates and the kept row of its near-duplicate cluster (-1: none).
    """

    rule: NDArray[np.object_]
    value: NDArray[np.float64]
    detail: NDArray[np.object_]
    duplicate_of: NDArray[np.int64]
    cluster: NDArray[np.int64]

    def kept(self) -> NDArray[np.int64]:
        """Return the rows that no rule has dropped, in order."""
        return np.array([row for row, rule in enumerate(self.rule) if rule is None], np.int64)

    def drop(self, row: int, rejection: Rejection) -> None:
        """Drop one row."""
        self.rule[row] = rejection.rule
        self.value[row] = np.nan if rejection.value is None else rejection.value
        self.detail[row] = rejection.detail

    def drop_duplicates(self, rows: NDArray[np.int64], kept: NDArray[np.int64], rule: str) -> None:
        """Drop each of `rows` as a duplicate of the row at the same position in `kept`."""
        self.rule[rows] = rule
        self.duplicate_of[rows] = kept


def decisions_after_reading(corpus: Corpus) -> Decisions:
    """Return the decisions of the rules that were applied to single files in reading."""
    num_rows = len(corpus)
    return Decisions(
        rule=corpus.strings("rule"),
        value=corpus.table.column("value").to_numpy().astype(np.float64),
        detail=corpus.strings("detail"),
        duplicate_of=np.full(num_rows, -1, np.int64),
        cluster=np.full(num_rows, -1, np.int64),
    )


def drop_forgotten(corpus: Corpus, decisions: Decisions, requests: ForgetRequests) -> None:
    """Drop the kept rows that owners have asked to forget, before the rules that compare rows."""
    if not requests.requests:
        return
    reasons = requests.match(corpus.strings("repository"), corpus.strings("path"))
    for row in decisions.kept().tolist():
        if reasons[row] is not None:
            decisions.drop(row, Rejection(FORGOTTEN_RULE, detail=reasons[row]))
