"""What becomes of every row of the corpus while the driver decides."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus import Corpus
from data_prep.documents import Rejection
from data_prep.forget_requests import FORGOTTEN_RULE, ForgetRequests


@dataclass(frozen=True)
class Fates:
    """Per row of the corpus: the rule that drops it (None: kept so far), its value (NaN: none) and detail, the
    row it repeats and the kept row of its near-duplicate cluster (-1: none)."""

    rule: NDArray[np.object_]
    value: NDArray[np.float64]
    detail: NDArray[np.object_]
    duplicate_of: NDArray[np.int64]
    cluster: NDArray[np.int64]

    def kept(self) -> NDArray[np.int64]:
        """The rows that nothing has dropped, in order."""
        return np.array([row for row, rule in enumerate(self.rule) if rule is None], np.int64)

    def drop(self, row: int, rejection: Rejection) -> None:
        """Drop one row."""
        self.rule[row] = rejection.rule
        self.value[row] = np.nan if rejection.value is None else rejection.value
        self.detail[row] = rejection.detail

    def drop_duplicates(self, rows: NDArray[np.int64], kept: NDArray[np.int64], rule: str) -> None:
        """Drop each of `rows` as a repetition of the row at the same place of `kept`."""
        self.rule[rows] = rule
        self.duplicate_of[rows] = kept


def fates_after_reading(corpus: Corpus) -> Fates:
    """What the rules that see one file at a time decided."""
    num_rows = len(corpus)
    return Fates(
        rule=corpus.strings("rule"),
        value=corpus.table.column("value").to_numpy().astype(np.float64),
        detail=corpus.strings("detail"),
        duplicate_of=np.full(num_rows, -1, np.int64),
        cluster=np.full(num_rows, -1, np.int64),
    )


def drop_forgotten(corpus: Corpus, fates: Fates, requests: ForgetRequests) -> None:
    """Drop the kept rows that an owner has asked to be forgotten, before any other rule looks at other rows."""
    if not requests.requests:
        return
    reasons = requests.match(corpus.strings("repository"), corpus.strings("path"))
    for row in fates.kept().tolist():
        if reasons[row] is not None:
            fates.drop(row, Rejection(FORGOTTEN_RULE, detail=reasons[row]))
