"""Configuration of the tokenizer."""

from typing import Literal

from pydantic import Field, model_validator

from cluster.config import Config
from data_prep.documents import SPECIAL_TOKENS

# A vocabulary contains the special tokens and one token per byte before any learned token.
MIN_VOCAB_SIZE = len(SPECIAL_TOKENS) + 256

# SentencePiece also needs room for tabs and for the most frequent characters.
MIN_SENTENCEPIECE_VOCAB_SIZE = MIN_VOCAB_SIZE + 64

TokenizerKind = Literal["bpe", "sentencepiece_unigram", "sentencepiece_bpe"]


class TokenizerConfig(Config):
    """A tokenizer of code, trained on `sample_bytes` of the train split.

    These rules restrict the learned tokens of both kinds:
    - `digits`: one digit, or up to three;
    - `punctuation`: "separate" keeps signs other than the underscore separate from words: text to be completed often
      ends with a sign ("names."), and the next token must then be one that the model has seen after a sign. "joined"
      allows the one sign before a word in its token (".append", "(self"), which saves 3-5 % of the tokens;
    - `max_whitespace_run`: the longest run of whitespace in a token, in characters;
    - `max_token_bytes`: the longest token, in bytes of UTF-8. It prevents a separate token for each length of
      rulers ("======").
    """

    kind: TokenizerKind = "bpe"
    vocab_size: int = Field(default=8192, ge=MIN_VOCAB_SIZE, le=1_048_576)
    sample_bytes: int = Field(default=16_000_000, gt=0)
    digits: Literal["single", "up_to_three"] = "single"
    punctuation: Literal["joined", "separate"] = "separate"
    max_whitespace_run: int = Field(default=32, ge=1, le=255)
    max_token_bytes: int = Field(default=32, ge=4, le=255)

    @model_validator(mode="after")
    def _has_room_for_characters(self) -> "TokenizerConfig":
        if self.kind != "bpe" and self.vocab_size < MIN_SENTENCEPIECE_VOCAB_SIZE:
            raise ValueError(
                f"vocab_size={self.vocab_size} must be at least {MIN_SENTENCEPIECE_VOCAB_SIZE} for {self.kind}"
            )
        return self
