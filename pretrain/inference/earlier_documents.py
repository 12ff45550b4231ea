"""Documents that are read before a text with a hole, as the files of one repository follow each other in training.

Shapes: T tokens.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Sides


def with_documents_before(
    decoder: Decoder, tokenizer: CodeTokenizer, sides: Sides, documents: Sequence[bytes]
) -> Sides:
    """Return the sides of a text with documents before it, the nearest of them last.

    The first ones are left out if the memory that the model has of a text cannot depend on them. A model without memory
    or with absolute positions gets none.
    """
    if decoder.memory_tokens == 0 or decoder.absolute:
        return sides
    rows = _nearest(tokenizer, documents, (decoder.reach_segments + 1) * decoder.segment_tokens)
    pieces = [np.append(tokenizer.eod_id, row_T) for row_T in rows]
    before = []
    for number, piece_T in zip(range(len(rows), 0, -1), pieces, strict=True):
        before.append(np.full(len(piece_T), number))
        before[-1][0] += 1  # its <eod> ends the document before it
    before_T = np.concatenate([*before, sides.before(0, len(sides.prefix))])
    return Sides(np.concatenate([*pieces, sides.prefix]), sides.suffix, before_T=before_T)


def _nearest(
    tokenizer: CodeTokenizer, documents: Sequence[bytes], num_tokens: int
) -> list[NDArray[np.int64]]:
    """Return the tokens of the last documents that have `num_tokens` together, all if there are fewer."""
    rows: list[NDArray[np.int64]] = []
    most_bytes = num_tokens * int(tokenizer.token_bytes.max())
    for text in reversed([text for text in documents if text]):
        if sum(map(len, rows)) >= num_tokens:
            break
        # Of a very long text the beginning is out of reach too, however few tokens it has.
        rows.append(tokenizer.encode_bytes(text[-most_bytes:]).astype(np.int64))
    return rows[::-1]
