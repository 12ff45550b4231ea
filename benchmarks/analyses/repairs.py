"""Analyse the predictions of repair systems: how often they change a function, where, and whether correctly.

    python -m benchmarks.analyses.repairs OUT/repair-KEY/*/seed-0/predictions.jsonl

Texts are compared by tokens, split at white space. An item counts as changed where the reference changes it if one of
the system's edits touches a place of the source that an edit towards the reference touches as well.
"""

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.analyses.rows import read_rows


@dataclass(frozen=True)
class RepairCounts:
    """Counts over a system's predictions."""

    items: int
    unchanged: int
    """Predictions that equal their source."""
    only_lost: int
    """Predictions that remove tokens and add none."""
    at_the_place: int
    """Predictions that change a place that the reference changes."""
    right: int
    """Changed predictions that equal the reference."""
    references_only_lose: int
    """Items whose reference removes tokens of the source and adds none."""


@dataclass(frozen=True)
class Edits:
    """The edits from one list of tokens to another: touched places of the first, counts of removed and added tokens."""

    places: frozenset[int]
    num_lost: int
    num_added: int

    @property
    def only_loses(self) -> bool:
        """Whether tokens are removed and none is added."""
        return self.num_lost > 0 and self.num_added == 0


def edits(source: Sequence[str], text: Sequence[str]) -> Edits:
    """Return difflib's edits from `source` to `text`; an insertion touches the places on both sides of it."""
    places: set[int] = set()
    num_lost = num_added = 0
    for kind, first, end, other_first, other_end in difflib.SequenceMatcher(
        None, source, text, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            places |= set(range(first, end)) or {first - 1, first}
            num_lost += end - first
            num_added += other_end - other_first
    return Edits(frozenset(places), num_lost, num_added)


def count_repairs(rows: Iterable[Mapping[str, Any]]) -> RepairCounts:
    """Count the kinds of edits in the rows of a predictions.jsonl."""
    items = unchanged = only_lost = at_the_place = right = references_only_lose = 0
    for row in rows:
        source, written, wanted = (
            text.split() for text in (row["source"], row["written"], row["references"][0])
        )
        made, meant = edits(source, written), edits(source, wanted)
        items += 1
        references_only_lose += meant.only_loses
        unchanged += written == source
        only_lost += made.only_loses
        at_the_place += not made.places.isdisjoint(meant.places)
        right += written == wanted and written != source
    return RepairCounts(items, unchanged, only_lost, at_the_place, right, references_only_lose)


def main() -> None:
    if len(sys.argv) == 1:
        raise SystemExit(__doc__)
    for name in sys.argv[1:]:
        counts = count_repairs(read_rows(Path(name)))
        changed = max(counts.items - counts.unchanged, 1)
        print(
            f"{name}: {counts.items} items, {counts.unchanged / counts.items:.1%} given back unchanged; of the changed "
            f"{counts.only_lost / changed:.1%} only lose tokens, {counts.at_the_place / changed:.1%} are changed where "
            f"the reference is, {counts.right / changed:.1%} are right; of the references "
            f"{counts.references_only_lose / counts.items:.1%} only lose tokens"
        )


if __name__ == "__main__":
    main()
