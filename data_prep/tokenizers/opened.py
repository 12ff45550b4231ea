"""A loaded tokenizer of any kind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizers.encoding import Encoder


class ForeignTokenizer(Exception):
    """The file is a tokenizer whose special tokens are not permcode's."""


@dataclass(frozen=True)
class OpenedTokenizer:
    """A loaded tokenizer.

    `vocabulary` has the bytes of every id, empty for special tokens; `exported` is the model in the format of the
    library that trained it.
    """

    kind: str
    vocabulary: tuple[bytes, ...]
    encoder: Encoder
    exported: bytes

    @property
    def fallback_reason(self) -> str | None:
        """Why the plain encoder is used instead of the fast one; None if the fast one is used or there is none."""
        reason: str | None = getattr(self.encoder, "fallback_reason", None)
        return reason


def token_lengths(vocabulary: tuple[bytes, ...]) -> NDArray[np.int64]:
    """Return the number of bytes of each token, shape [vocab_size]."""
    return np.array([len(token) for token in vocabulary], dtype=np.int64)


def first_byte_ids(vocabulary: tuple[bytes, ...]) -> NDArray[np.uint32]:
    """Return for each byte the first id of that byte alone, shape [256]."""
    id_of: dict[bytes, int] = {}
    for number, token in enumerate(vocabulary):
        if len(token) == 1:
            id_of.setdefault(token, number)
    return np.array([id_of[bytes([byte])] for byte in range(256)], dtype=np.uint32)
