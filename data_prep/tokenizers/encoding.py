"""What every encoder does: valid UTF-8 in, ids out, exactly; and bytes that are no UTF-8, around it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The ids of all texts one after the other; those of text `i` are `ids[ends[i] : ends[i + 1]]`.

    `ends` begins with 0: it has one item more than there are texts.
    """

    ids: Ids
    ends: NDArray[np.int64]


class Encoder(Protocol):
    """Turns texts into ids on the calling thread."""

    @property
    def name(self) -> str:
        """The library it is of."""

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Ids of each text, which must be valid UTF-8; text that spells a special token is ordinary."""


def join(parts: Sequence[Ids]) -> EncodedBatch:
    """One batch of what was encoded text by text."""
    ends = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    return EncodedBatch(np.concatenate(parts) if parts else np.zeros(0, np.uint32), ends)


def is_utf8(data: bytes) -> bool:
    """Whether `data` is valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# Bytes that are no UTF-8, as `surrogateescape` decodes them.
_BROKEN = re.compile("[\udc80-\udcff]+")


def encode_around(
    text: str,
    apart: re.Pattern[str],
    byte_ids: NDArray[np.uint32],
    encode: Callable[[Sequence[bytes]], EncodedBatch],
) -> Ids:
    """Ids of a text (decoded with `surrogateescape`) where what `apart` matches becomes byte tokens.

    `byte_ids` [256] are the ids of single bytes.
    """
    cuts = [0, *(edge for match in apart.finditer(text) for edge in match.span()), len(text)]
    pieces = [text[a:b].encode(errors="surrogateescape") for a, b in zip(cuts, cuts[1:], strict=False)]
    batch = encode(pieces[::2])
    ordinary = [batch.ids[a:b] for a, b in zip(batch.ends, batch.ends[1:], strict=False)]
    single = [byte_ids[np.frombuffer(piece, np.uint8)] for piece in pieces[1::2]]
    parts: list[Ids] = [ordinary[0]]
    for one, following in zip(single, ordinary[1:], strict=True):
        parts += [one, following]
    return np.concatenate(parts)


def encode_apart(
    texts: Sequence[bytes],
    is_apart: Sequence[bool],
    encode: Callable[[Sequence[bytes]], EncodedBatch],
    encode_one_apart: Callable[[bytes], Ids],
) -> EncodedBatch:
    """Ids of each text, in the order given: those that `is_apart` marks one by one, all others at once."""
    if not any(is_apart):
        return encode(texts)
    batch = encode([text for text, apart in zip(texts, is_apart, strict=True) if not apart])
    ordinary = iter([batch.ids[a:b] for a, b in zip(batch.ends, batch.ends[1:], strict=False)])
    return join(
        [
            encode_one_apart(text) if apart else next(ordinary)
            for text, apart in zip(texts, is_apart, strict=True)
        ]
    )


def encode_any(encoder: Encoder, data: Sequence[bytes], byte_ids: NDArray[np.uint32]) -> EncodedBatch:
    """Ids of any bytes: stretches of valid UTF-8 by the encoder, every other byte as its own token."""

    def encode_broken(one: bytes) -> Ids:
        return encode_around(one.decode(errors="surrogateescape"), _BROKEN, byte_ids, encoder.encode)

    return encode_apart(data, [not is_utf8(one) for one in data], encoder.encode, encode_broken)
