"""The tokenizer as everybody uses it: load, encode, decode."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cluster.errors import UserError
from cluster.storage import sha256_bytes
from data_prep.documents import SPECIAL_TOKENS

# uint16 or uint32, as `token_dtype` says.
TokenArray = NDArray[np.unsignedinteger[Any]]


class CodeTokenizer:
    """Byte-level BPE. Text in, ids out and back, exactly, for every text that is valid Unicode.

    Text that spells a special token ("<eod>") is ordinary text: specials come only from ids.
    """

    def __init__(self, tokenizer: Tokenizer, fingerprint: str) -> None:
        self._tokenizer = tokenizer
        # Not stored in the file, so it is set at every load.
        self._tokenizer.encode_special_tokens = True
        self.fingerprint = fingerprint
        self.vocab_size: int = tokenizer.get_vocab_size()
        self.dtype: type[np.uint16] | type[np.uint32] = token_dtype(self.vocab_size)

    @classmethod
    def load(cls, path: Path, expected_sha256: str | None = None) -> "CodeTokenizer":
        """Read `tokenizer.json`. UserError when it is missing, damaged or not the expected file."""
        advice = "remove the folder it is in and run prep again"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise UserError(f"tokenizer {path} is missing: {advice}") from None
        digest = sha256_bytes(data)
        if expected_sha256 is not None and digest != expected_sha256:
            raise UserError(
                f"tokenizer {path} is damaged (its SHA-256 differs from the manifest's): {advice}"
            )
        try:
            tokenizer = Tokenizer.from_str(data.decode())
        except Exception as error:  # tokenizers raises bare Exception for every parse error
            raise UserError(f"tokenizer {path} is damaged (cannot be parsed): {advice}") from error
        if [tokenizer.id_to_token(i) for i in range(len(SPECIAL_TOKENS))] != list(SPECIAL_TOKENS):
            raise UserError(
                f"tokenizer {path} was not made by permcode prep (other special tokens): {advice}"
            )
        return cls(tokenizer, digest)

    @property
    def pad_id(self) -> int:
        """Id of `<pad>`."""
        return self.special_id("<pad>")

    @property
    def eod_id(self) -> int:
        """Id of `<eod>`, the last token of every document in a shard."""
        return self.special_id("<eod>")

    def special_id(self, token: str) -> int:
        """Id of one of `documents.SPECIAL_TOKENS`."""
        return SPECIAL_TOKENS.index(token)

    def encode(self, text: str) -> TokenArray:
        """Ids of the text, without specials; uint16, or uint32 where the vocabulary needs it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[TokenArray]:
        """`encode` of each text."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=self.dtype) for encoding in encodings]

    def encode_with_offsets(self, text: str) -> tuple[TokenArray, NDArray[np.int64]]:
        """Ids, and for each the position in the UTF-8 text of its first byte."""
        ids = self.encode(text)
        num_bytes = self.token_bytes[ids]
        return ids, np.cumsum(num_bytes) - num_bytes

    def decode(self, ids: NDArray[np.integer] | list[int]) -> str:
        """The text of the ids; specials are left out, broken UTF-8 becomes U+FFFD."""
        text: str = self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)
        return text

    @cached_property
    def token_bytes(self) -> NDArray[np.int64]:
        """Shape [vocab_size]: UTF-8 bytes each token stands for; 0 for specials."""
        # In the byte-level alphabet a token is spelled with one character per byte.
        lengths = [len(self._tokenizer.id_to_token(i) or "") for i in range(self.vocab_size)]
        lengths[: len(SPECIAL_TOKENS)] = [0] * len(SPECIAL_TOKENS)
        return np.array(lengths, dtype=np.int64)


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest of the two types that holds every id."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32
