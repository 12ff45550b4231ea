"""Reading of the text before the segment of a hole: segment by segment from its start, into the model's memory.

The ends of segments depend on the start of the text alone. So a text whose beginning has not changed can be read from
the last segment on that is still the same. Of a long text, segments that cannot change the memory are not read.

Shapes: B lanes, T tokens, M memory.
"""

from collections import OrderedDict
from hashlib import sha256

import numpy as np
import torch

from pretrain.inference.context import Context
from pretrain.inference.decoder import Decoder
from pretrain.inference.session import DecodingSession


class HistoryCache:
    """The memory after each segment of texts that were read, up to `max_bytes`; the longest unused goes first.

    `num_reused` counts the tokens that were not read because a memory of them was there.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._memories: OrderedDict[bytes, DecodingSession] = OrderedDict()
        self.num_reused = 0

    def find(self, digests: list[bytes]) -> tuple[int, DecodingSession | None]:
        """Return the number of segments of the longest text that is known, and the memory after it."""
        for number in range(len(digests), 0, -1):
            memory = self._memories.get(digests[number - 1])
            if memory is not None:
                self._memories.move_to_end(digests[number - 1])
                return number, memory
        return 0, None

    def add(self, digest: bytes, memory: DecodingSession) -> None:
        """Keep the memory after a text."""
        self._memories[digest] = memory
        self._bytes += memory.num_bytes
        while self._bytes > self._max_bytes and len(self._memories) > 1:
            self._bytes -= self._memories.popitem(last=False)[1].num_bytes


@torch.inference_mode()
def read_from_start(
    decoder: Decoder, history: Context, cache: HistoryCache | None = None
) -> DecodingSession | None:
    """Return a session of one lane that holds the model's memory of the text; None if there is no text or no memory."""
    segment_tokens, memory_tokens = decoder.segment_tokens, decoder.memory_tokens
    if history.num_columns == 0 or memory_tokens == 0:
        return None
    digests = _digests(history, segment_tokens) if cache is not None else []
    first, known = (0, None) if cache is None else cache.find(digests)
    out_of_reach = history.num_columns // segment_tokens - decoder.reach_segments
    if out_of_reach > first:
        first, known = out_of_reach, None
    exact_from = 0 if first == 0 or known is not None else first + decoder.reach_segments
    session = DecodingSession(decoder, 1, memory_tokens + segment_tokens)
    if known is not None:
        session.copy_from(known, 0, 0)
        # The text may be another one now, of which more documents are before it.
        end = first * segment_tokens
        session.set_documents(history.before_BT[:, end - known.num_columns : end])
    for number, start in enumerate(
        range(first * segment_tokens, history.num_columns, segment_tokens), first + 1
    ):
        session.encode(history.part(start, min(start + segment_tokens, history.num_columns)))
        session.keep(max(0, session.num_columns - memory_tokens), session.num_columns)
        if cache is not None and exact_from <= number <= len(digests):
            cache.add(digests[number - 1], _copy(decoder, session))
    if cache is not None and known is not None:
        cache.num_reused += first * segment_tokens
    return session


def _digests(history: Context, segment_tokens: int) -> list[bytes]:
    """Return a digest of the text, and of where its documents end, up to the end of every whole segment."""
    tokens_T, before_T = history.tokens_BT[0].cpu().numpy(), history.before_BT[0].cpu().numpy()
    ends_T, found, digest = np.diff(before_T, prepend=before_T[:1]), [], sha256()
    for end in range(segment_tokens, len(tokens_T) + 1, segment_tokens):
        part = slice(end - segment_tokens, end)
        digest.update(tokens_T[part].tobytes() + ends_T[part].tobytes())
        found.append(digest.digest())
    return found


def _copy(decoder: Decoder, session: DecodingSession) -> DecodingSession:
    copy = DecodingSession(decoder, 1, session.num_columns)
    copy.copy_from(session, 0, 0)
    return copy
