"""Encoders of SentencePiece models."""

import re
from collections.abc import Sequence
from typing import Any

import gigatoken
import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizers.bpe_encoders import FastEncoder
from data_prep.tokenizers.encoding import EncodedBatch, Encoder, Ids, encode_apart, encode_around, join

# The library spells a space with this character, so it cannot tell the two apart.
META_SPACE = "\u2581"
_META_SPACE_BYTES = META_SPACE.encode()
_META_SPACE_PATTERN = re.compile(f"{META_SPACE}+")


class PlainSentencePiece:
    """The library itself. U+2581 comes out as a space."""

    name = "sentencepiece"

    # The library has no type annotations.
    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Ids of each text, which must be valid UTF-8."""
        return join([self._processor.encode_as_numpy(text) for text in texts])


def fast_sentencepiece(model: bytes) -> FastEncoder:
    """gigatoken on a BPE model. U+2581 comes out as a space."""
    converted = gigatoken.Tokenizer.from_sentencepiece(model)._hf_json
    if converted is None:
        raise ValueError("gigatoken keeps no converted model")
    return FastEncoder(converted if isinstance(converted, str) else converted.decode())


class AroundMetaSpace:
    """An encoder that keeps U+2581 and the space apart: the former becomes its three byte tokens."""

    def __init__(self, encoder: Encoder, byte_ids: NDArray[np.uint32]) -> None:
        self._encoder = encoder
        self._byte_ids = byte_ids

    @property
    def name(self) -> str:
        """Name of the encoder within."""
        return self._encoder.name

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Ids of each text, which must be valid UTF-8."""
        is_apart = [_META_SPACE_BYTES in text for text in texts]
        return encode_apart(texts, is_apart, self._encoder.encode, self._encode_with_meta_space)

    def _encode_with_meta_space(self, text: bytes) -> Ids:
        return encode_around(text.decode(), _META_SPACE_PATTERN, self._byte_ids, self._encoder.encode)
