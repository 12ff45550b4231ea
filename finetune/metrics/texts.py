"""What every metric of written texts asks of its input."""

from collections.abc import Sequence

from cluster.errors import UserError


def check_texts(references: Sequence[Sequence[str]], written: Sequence[str]) -> None:
    """Raise UserError unless there is one text for each item and each item has a reference.

    A reference given as one string would be taken for as many references as it has characters, a mistake that has
    given published numbers (CodeBERT issue 180): it is refused with TypeError.
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
