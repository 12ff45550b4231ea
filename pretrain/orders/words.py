"""Words: which tokens begin one.

A token begins a word unless it continues one, that is unless the byte before it and its own first byte are both
letters, digits, underscores or part of a character beyond ASCII. So an identifier is one word however many pieces it
has, and punctuation, white space and special tokens are words of their own.

Shapes: B lanes, L segment, V vocabulary.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # so that a machine that has torch alone can try orders on its GPU
    from data_prep.tokenizer import CodeTokenizer

_ASCII_WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def _in_word(byte: int) -> bool:
    return byte in _ASCII_WORD_BYTES or byte >= 0x80


@dataclass(frozen=True)
class WordPieces:
    """Whether a token's first and last byte can be inside a word, bool [V] each."""

    first_V: Tensor
    last_V: Tensor

    @classmethod
    def of_tokenizer(cls, tokenizer: "CodeTokenizer", device: torch.device) -> "WordPieces":
        """Make the tables of a vocabulary, on `device`."""
        pieces = [tokenizer.decode_bytes([number]) for number in range(tokenizer.vocab_size)]
        first = [len(piece) > 0 and _in_word(piece[0]) for piece in pieces]
        last = [len(piece) > 0 and _in_word(piece[-1]) for piece in pieces]
        return cls(torch.tensor(first, device=device), torch.tensor(last, device=device))

    def begins_word(self, tokens_BL: Tensor) -> Tensor:
        """Return whether each token begins a word, bool [B, L]; the first token of a segment always does."""
        begins_BL = torch.ones_like(tokens_BL, dtype=torch.bool)
        begins_BL[:, 1:] = ~(self.last_V[tokens_BL[:, :-1]] & self.first_V[tokens_BL[:, 1:]])
        return begins_BL
