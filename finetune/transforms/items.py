"""Test items with their code changed by a transform, for a table of what each change costs a system."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from finetune.examples import Pair
from finetune.transforms.registry import transform


@dataclass(frozen=True)
class Changed:
    """Items that the transform could change: `before[i]` and `after[i]` are one item, with the same references.

    A fair comparison judges a system on both, never on all items against the changed ones.
    """

    kind: str
    before: list[Pair]
    after: list[Pair]


def transformed_items(items: Sequence[Pair], kind: str, language: str, seed: int) -> Changed:
    """Those whose source is changed, each by itself; references stay. UserError for an unknown kind.

    References that repeat names of the source (translation) cannot be met after a renaming; labels, summaries and what
    is to be found can.
    """
    before, after = [], []
    for item in items:
        code = transform(kind, item.source, language, seed)
        if code is not None:
            before.append(item)
            after.append(replace(item, source=code))
    return Changed(kind, before, after)
