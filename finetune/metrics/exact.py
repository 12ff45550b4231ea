"""Exact match, in percent: the share of items whose text is one of its references."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from finetune.metrics.measured import Measured, mean_of
from finetune.metrics.texts import check_texts


def exact_match(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Return the share of equal strings after stripping white space, as in CodeXGLUE's translation and refinement."""
    return _share_equal("exact_match", references, written, str.strip)


def exact_match_tokens(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Return the share of equal white-space tokens, as in CodeXGLUE's text-to-code and line completion."""
    return _share_equal("exact_match", references, written, lambda text: tuple(text.split()))


def _share_equal(
    name: str,
    references: Sequence[Sequence[str]],
    written: Sequence[str],
    compared: Callable[[str], Hashable],
) -> Measured:
    check_texts(references, written)
    values = [
        100.0 * (compared(one) in {compared(text) for text in texts})
        for texts, one in zip(references, written, strict=True)
    ]
    return mean_of(name, np.array(values))
