"""The threshold above which a line surprises, from the surprises of held-out lines.

Shapes: N held-out lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from pretrain.randomness import keyed_generator

_MOST_SHARE = 16
"""No document gives more than this part of the held-out tokens."""


@dataclass(frozen=True)
class HeldOutSurprises:
    """The surprises of held-out lines in bits, in ascending order."""

    surprise_N: NDArray[np.float64]

    @classmethod
    def of(cls, surprises: Sequence[float]) -> "HeldOutSurprises":
        """Sort the surprises of any lines."""
        return cls(np.sort(np.asarray(surprises, dtype=np.float64)))

    def threshold(self, false_alarm_rate: float) -> float:
        """Return the surprise that a line like the held-out ones exceeds with a probability of at most the rate.

        It is the k-th largest of the N surprises with k = rate * (N + 1), rounded down: a further line from the same
        distribution is equally likely to fall into any of the N + 1 gaps between them. Raises UserError for a rate
        that is not between 0 and 1, or for which there are too few lines.
        """
        if not 0.0 < false_alarm_rate < 1.0:
            raise UserError(f"a false-alarm rate is above 0 and below 1, got {false_alarm_rate}")
        num_lines = len(self.surprise_N)
        rank = int(false_alarm_rate * (num_lines + 1) * (1 + 1e-12))
        if rank < 1:
            raise UserError(
                f"{num_lines:,} held-out lines are too few for a false-alarm rate of {false_alarm_rate:g}: "
                f"it must be at least {1 / (num_lines + 1):.2g}"
            )
        return float(self.surprise_N[num_lines - rank])

    def false_alarm_rate(self, surprise: float) -> float:
        """Return the lowest rate at which a line of this surprise is reported: (lines as surprising + 1) / (N + 1)."""
        num_below = int(np.searchsorted(self.surprise_N, surprise, side="left"))
        return (len(self.surprise_N) - num_below + 1) / (len(self.surprise_N) + 1)


def held_out_texts(corpus: PreparedCorpus, num_tokens: int) -> list[bytes]:
    """Return documents of the validation split, drawn at random, of about `num_tokens` tokens together.

    A document that is longer than a sixteenth of that is cut there. A pure function of its arguments. Raises
    UserError if the split is empty.
    """
    entries = corpus.blocks("validation")
    generator = keyed_generator(0, "held-out lines")
    most_tokens = max(1, num_tokens // _MOST_SHARE)
    texts: list[bytes] = []
    num_left = num_tokens
    for index in generator.permutation(len(entries)):
        block = corpus.read_block(entries[index])
        for document in generator.permutation(len(block.docs)):
            tokens_T = np.asarray(block.document_tokens(int(document)))[:-1][: min(most_tokens, num_left)]
            if len(tokens_T):
                texts.append(_whole_lines(corpus.tokenizer.decode_bytes(tokens_T)))
                num_left -= len(tokens_T)
            if num_left <= 0:
                return texts
    if not texts:
        raise UserError(f"{corpus.location}: the validation split is empty: give that split a larger share")
    return texts


def _whole_lines(text: bytes) -> bytes:
    """Return the text up to its last line end, or all of it if it has none."""
    return text[: text.rfind(b"\n") + 1] or text
