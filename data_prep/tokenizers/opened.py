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

    def byte_ids(self) -> NDArray[np.uint32]:
        """Shape [256]: the id of each single byte."""
        id_of = {token: number for number, token in enumerate(self.vocabulary) if len(token) == 1}
        return np.array([id_of[bytes([byte])] for byte in range(256)], dtype=np.uint32)


def token_lengths(vocabulary: tuple[bytes, ...]) -> NDArray[np.int64]:
    """Shape [vocab_size]: bytes each token stands for."""
    return np.array([len(token) for token in vocabulary], dtype=np.int64)
