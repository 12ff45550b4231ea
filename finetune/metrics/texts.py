"""Input checks of all metrics of written texts."""

from collections.abc import Sequence

from cluster.errors import UserError


def check_texts(references: Sequence[Sequence[str]], written: Sequence[str]) -> None:
    """Raise UserError unless there is one text for each item and each item has a reference.

    Raise TypeError if an item's references are one string: each character would count as a reference, a mistake that
    has affected published scores (CodeBERT issue 180).
    """
    if len(references) != len(written):
        raise UserError(
            f"{len(written)} predictions for {len(references)} items: there must be one for each, in their order"
        )
    if not written:
        raise UserError("there are no predictions to measure: the set of items is empty")
    for number, texts in enumerate(references, start=1):
        if isinstance(texts, str):
            raise TypeError(f"the references of item {number} are one string: give a list of references")
        if not texts:
            raise UserError(f"item {number} has no reference to be compared with")
