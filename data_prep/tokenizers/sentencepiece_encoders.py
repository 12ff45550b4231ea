"""Encoders of SentencePiece models."""

import re
from collections.abc import Sequence
from typing import Any

import gigatoken
import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizers.bpe_encoders import FastEncoder
from data_prep.tokenizers.encoding import (
    EncodedBatch,
    Encoder,
    Ids,
    encode_exceptions_separately,
    encode_with_byte_tokens,
    join,
)

# The library represents a space by this character, so it cannot distinguish the two.
META_SPACE = "\u2581"
_META_SPACE_BYTES = META_SPACE.encode()
_META_SPACE_PATTERN = re.compile(f"{META_SPACE}+")


class PlainSentencePiece:
    """The reference encoder, the library itself. It encodes U+2581 as a space."""

    name = "sentencepiece"

    # The library has no type annotations.
    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        return join([self._processor.encode_as_numpy(text) for text in texts])


def fast_sentencepiece(model: bytes) -> FastEncoder:
    """Return gigatoken's encoder of a BPE model. It encodes U+2581 as a space."""
    converted = gigatoken.Tokenizer.from_sentencepiece(model)._hf_json
    if converted is None:
        raise ValueError("gigatoken has no converted model")
    return FastEncoder(converted if isinstance(converted, str) else converted.decode())


class MetaSpaceEncoder:
    """Wraps an encoder to distinguish U+2581, which becomes its three byte tokens, from the space."""

    def __init__(self, encoder: Encoder, byte_ids: NDArray[np.uint32]) -> None:
        self._encoder = encoder
        self._byte_ids = byte_ids

    @property
    def name(self) -> str:
        """The name of the wrapped encoder."""
        return self._encoder.name

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        has_meta_space = [_META_SPACE_BYTES in text for text in texts]
        return encode_exceptions_separately(
            texts, has_meta_space, self._encoder.encode, self._encode_with_meta_space
        )

    def _encode_with_meta_space(self, text: bytes) -> Ids:
        return encode_with_byte_tokens(
            text.decode(), _META_SPACE_PATTERN, self._byte_ids, self._encoder.encode
        )
