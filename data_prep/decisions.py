"""What becomes of every listed file: dropped by which rule, or kept in which split."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.errors import UserError
from data_prep.config import PrepConfig
from data_prep.dedup import first_of_each
from data_prep.documents import SourceFile
from data_prep.ledger import LedgerRow, dropped_by_rule
from data_prep.split import split_repositories
from data_prep.text_store import ReadOutcome, TextRef


@dataclass(frozen=True)
class ReadFile:
    """A listed file after reading; `text` is None where no text was stored."""

    file: SourceFile
    outcome: ReadOutcome
    text: TextRef | None


# Files of repositories that are over the budget are listed, never opened.
OVER_BUDGET = ReadOutcome(None, 0, None, "budget")


def decide(files: Sequence[ReadFile], config: PrepConfig) -> list[LedgerRow]:
    """One row per file, in order; `num_tokens` is not known yet.

    Raises UserError when no file is kept, or too few repositories for three splits.
    """
    # Only files that passed the rules can be repeated: a duplicate of a dropped file is dropped by the
    # same rule.
    kept = [position for position, read in enumerate(files) if read.outcome.rule is None]
    firsts = first_of_each(files[position].outcome.sha256 for position in kept)
    duplicate_of = {
        position: files[kept[first]].file
        for position, first in zip(kept, firsts, strict=True)
        if first is not None
    }
    rows = [_row(read, duplicate_of.get(position)) for position, read in enumerate(files)]
    num_bytes_of: dict[str, int] = {}
    for row in rows:
        if row.fate == "kept":
            num_bytes_of[row.repository] = num_bytes_of.get(row.repository, 0) + (row.num_text_bytes or 0)
    if not num_bytes_of:
        counts = ", ".join(f"{rule} {count}" for rule, count in dropped_by_rule(rows).items())
        raise UserError(
            f"no usable file: all {len(rows)} files of the corpus were dropped ({counts}); "
            "loosen `prep.filters` or point `prep.source` at another corpus"
        )
    split_of = split_repositories(num_bytes_of, config.split)
    return [_with_split(row, split_of[row.repository]) if row.fate == "kept" else row for row in rows]


def _row(read: ReadFile, duplicate_of: SourceFile | None) -> LedgerRow:
    outcome = read.outcome
    rule = "exact_duplicate" if duplicate_of is not None else outcome.rule
    return LedgerRow(
        source=read.file.source,
        repository=read.file.repository,
        path=read.file.path,
        language=read.file.language,
        num_bytes=read.file.num_bytes,
        num_text_bytes=None if outcome.sha256 is None else outcome.num_text_bytes,
        sha256=outcome.sha256,
        fate="kept" if rule is None else "dropped",
        rule=rule,
        value=outcome.value,
        duplicate_of=None if duplicate_of is None else f"{duplicate_of.repository}:{duplicate_of.path}",
        split=None,
        num_tokens=None,
    )


def _with_split(row: LedgerRow, split: str) -> LedgerRow:
    return replace(row, split=split)
