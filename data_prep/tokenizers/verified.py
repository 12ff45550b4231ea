"""An encoder that uses the fast one as long as it agrees with the plain one."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.errors import first_line
from data_prep.tokenizers.encoding import EncodedBatch, Encoder
from data_prep.tokenizers.verification import battery, first_difference


class VerifiedEncoder:
    """Encodes exactly as `plain` does, with the fast encoder if it agrees on all texts of the battery.

    Every batch is checked again: its tokens must have as many bytes as the texts. When the fast encoder is abandoned,
    `fallback_reason` says why, in one line.
    """

    def __init__(
        self, plain: Encoder, make_fast: Callable[[], Encoder], token_bytes_V: NDArray[np.int64]
    ) -> None:
        self.fallback_reason: str | None = None
        self._plain = plain
        # uint16, because the lengths of a complete batch are looked up at once.
        self._token_bytes_V = token_bytes_V.astype(np.uint16)
        self._chosen = plain
        try:
            fast = make_fast()
            difference = first_difference(fast, plain, battery())
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        # A panic in compiled code raises a BaseException.
        except BaseException as error:
            self.fallback_reason = f"the fast encoder failed: {first_line(error)}"
            return
        if difference is not None:
            self.fallback_reason = f"the fast encoder differs on {difference[:40]!r}"
            return
        self._chosen = fast

    @property
    def name(self) -> str:
        """The name of the encoder in use."""
        return self._chosen.name

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        batch = self._chosen.encode(texts)
        if self._chosen is not self._plain and not self._covers(batch, texts):
            self.fallback_reason = "the fast encoder lost bytes of a text"
            self._chosen = self._plain
            batch = self._chosen.encode(texts)
        return batch

    def _covers(self, batch: EncodedBatch, texts: Sequence[bytes]) -> bool:
        return int(self._token_bytes_V[batch.ids].sum(dtype=np.int64)) == sum(map(len, texts))
