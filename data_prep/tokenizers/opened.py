"""A tokenizer file after it was read, whatever its kind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizers.encoding import Encoder


class ForeignTokenizer(Exception):
    """The file is a tokenizer, but its special tokens are not permcode's."""


@dataclass(frozen=True)
class OpenedTokenizer:
    """`vocabulary` holds the bytes every id stands for, none for special tokens; `exported` is the model in
    the format of the library that trained it."""

    kind: str
    vocabulary: tuple[bytes, ...]
    encoder: Encoder
    exported: bytes

    @property
    def fallback_reason(self) -> str | None:
        """Why the plain encoder is used where there is a faster one; None where the fast one is."""
        reason: str | None = getattr(self.encoder, "fallback_reason", None)
        return reason


def token_lengths(vocabulary: tuple[bytes, ...]) -> NDArray[np.int64]:
    """Shape [vocab_size]: bytes each token stands for."""
    return np.array([len(token) for token in vocabulary], dtype=np.int64)


def first_byte_ids(vocabulary: tuple[bytes, ...]) -> NDArray[np.uint32]:
    """Shape [256]: for each byte, the first id that stands for it alone."""
    id_of: dict[bytes, int] = {}
    for number, token in enumerate(vocabulary):
        if len(token) == 1:
            id_of.setdefault(token, number)
    return np.array([id_of[bytes([byte])] for byte in range(256)], dtype=np.uint32)
