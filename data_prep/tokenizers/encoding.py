"""The interface of encoders, which take valid UTF-8, and the encoding of bytes that are not UTF-8."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The concatenated ids of all texts; those of text `i` are `ids[ends[i] : ends[i + 1]]`.

    `ends` [num_texts + 1] begins with 0.
    """

    ids: Ids
    ends: NDArray[np.int64]


class Encoder(Protocol):
    """Encodes texts to ids on the calling thread."""

    @property
    def name(self) -> str:
        """The name of the library."""

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8; special tokens in text are ordinary text."""


def join(parts: Sequence[Ids]) -> EncodedBatch:
    """Return one batch of texts that were encoded one by one."""
    ends = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    return EncodedBatch(np.concatenate(parts) if parts else np.zeros(0, np.uint32), ends)


def is_utf8(data: bytes) -> bool:
    """Return whether `data` is valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# Bytes that are not UTF-8, as `surrogateescape` decodes them.
_BROKEN = re.compile("[\udc80-\udcff]+")


def encode_with_byte_tokens(
    text: str,
    as_bytes: re.Pattern[str],
    byte_ids: NDArray[np.uint32],
    encode: Callable[[Sequence[bytes]], EncodedBatch],
) -> Ids:
    """Return the ids of a text (decoded with `surrogateescape`), with byte tokens for matches of `as_bytes`.

    `byte_ids` [256] are the ids of single bytes.
    """
    cuts = [0, *(edge for match in as_bytes.finditer(text) for edge in match.span()), len(text)]
    pieces = [text[a:b].encode(errors="surrogateescape") for a, b in zip(cuts, cuts[1:], strict=False)]
    batch = encode(pieces[::2])
    ordinary = [batch.ids[a:b] for a, b in zip(batch.ends, batch.ends[1:], strict=False)]
    single = [byte_ids[np.frombuffer(piece, np.uint8)] for piece in pieces[1::2]]
    parts: list[Ids] = [ordinary[0]]
    for one, following in zip(single, ordinary[1:], strict=True):
        parts += [one, following]
    return np.concatenate(parts)


def encode_exceptions_separately(
    texts: Sequence[bytes],
    is_exception: Sequence[bool],
    encode: Callable[[Sequence[bytes]], EncodedBatch],
    encode_exception: Callable[[bytes], Ids],
) -> EncodedBatch:
    """Return the ids of each text in order: exceptions are encoded one by one, all other texts in one batch."""
    if not any(is_exception):
        return encode(texts)
    batch = encode([text for text, is_one in zip(texts, is_exception, strict=True) if not is_one])
    ordinary = iter([batch.ids[a:b] for a, b in zip(batch.ends, batch.ends[1:], strict=False)])
    return join(
        [
            encode_exception(text) if is_one else next(ordinary)
            for text, is_one in zip(texts, is_exception, strict=True)
        ]
    )


def encode_any(encoder: Encoder, data: Sequence[bytes], byte_ids: NDArray[np.uint32]) -> EncodedBatch:
    """Return the ids of any bytes: valid UTF-8 is encoded by `encoder`, every other byte is its own token."""

    def encode_broken(one: bytes) -> Ids:
        return encode_with_byte_tokens(
            one.decode(errors="surrogateescape"), _BROKEN, byte_ids, encoder.encode
        )

    return encode_exceptions_separately(
        data, [not is_utf8(one) for one in data], encoder.encode, encode_broken
    )
