"""The public interface of the tokenizer: load, encode, decode."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.storage import sha256_bytes, write_bytes
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.encoding import encode_any
from data_prep.tokenizers.opened import ForeignTokenizer, OpenedTokenizer, first_byte_ids, token_lengths
from data_prep.tokenizers.opening import open_tokenizer

# uint16 or uint32, as `token_dtype` says.
TokenArray = NDArray[np.unsignedinteger[Any]]

_ADVICE = "remove the folder it is in and run prep again"


class CodeTokenizer:
    """Byte-level BPE or SentencePiece. Any bytes can be encoded to ids and decoded again exactly.

    Text that looks like a special token ("<eod>") is ordinary text: encoding never gives special ids. Nothing is
    normalised. Bytes that are not UTF-8 become one token each.
    """

    def __init__(self, opened: OpenedTokenizer, fingerprint: str) -> None:
        self._opened = opened
        self._byte_ids = first_byte_ids(opened.vocabulary)
        self.kind = opened.kind
        # SHA-256 of the file.
        self.fingerprint = fingerprint
        self.vocab_size = len(opened.vocabulary)
        self.dtype: type[np.uint16] | type[np.uint32] = token_dtype(self.vocab_size)

    @classmethod
    def load(cls, path: Path, expected_sha256: str | None = None) -> "CodeTokenizer":
        """Read `tokenizer.json`. UserError when it is missing, damaged or not the expected file.

        The fast encoder is checked against the plain one at the first load in a process (0.3 s at most).
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise UserError(f"tokenizer {path} is missing: {_ADVICE}") from None
        return cls.of_bytes(data, str(path), expected_sha256)

    @classmethod
    def of_bytes(cls, data: bytes, path: str, expected_sha256: str | None = None) -> "CodeTokenizer":
        """Load the tokenizer, as `load`, from the content of the file at `path`."""
        digest = sha256_bytes(data)
        if expected_sha256 is not None and digest != expected_sha256:
            raise UserError(
                f"tokenizer {path} is damaged (its SHA-256 differs from the manifest's): {_ADVICE}"
            )
        try:
            return cls(open_tokenizer(data, digest), digest)
        except ForeignTokenizer:
            raise UserError(
                f"tokenizer {path} is not one of permcode's (its special tokens differ), so it cannot be used here: "
                "use a model that was trained on the output of permcode prep"
            ) from None
        except Exception as error:  # the libraries raise bare Exception for every parse error
            raise UserError(f"tokenizer {path} is damaged (cannot be parsed): {_ADVICE}") from error

    @property
    def encoder_name(self) -> str:
        """The library in use: "gigatoken", "tokenizers" or "sentencepiece"."""
        return self._opened.encoder.name

    @property
    def fallback_reason(self) -> str | None:
        """Why the slow encoder is used, in one line; None while the fastest one is used."""
        return self._opened.fallback_reason

    @property
    def pad_id(self) -> int:
        """The id of `<pad>`."""
        return self.special_id("<pad>")

    @property
    def eod_id(self) -> int:
        """The id of `<eod>`, the last token of every document in a shard."""
        return self.special_id("<eod>")

    def special_id(self, token: str) -> int:
        """Return the id of one of `documents.SPECIAL_TOKENS`."""
        return SPECIAL_TOKENS.index(token)

    def encode(self, text: str) -> TokenArray:
        """Return the ids of the text, without special tokens; uint16, or uint32 if the vocabulary needs it."""
        return self.encode_bytes(text.encode())

    def encode_batch(self, texts: Sequence[str]) -> list[TokenArray]:
        """Return `encode` of each text."""
        return self.encode_bytes_batch([text.encode() for text in texts])

    def encode_bytes(self, data: bytes) -> TokenArray:
        """Return the ids of the bytes, as `encode`."""
        return self.encode_bytes_batch([data])[0]

    def encode_bytes_batch(self, data: Sequence[bytes]) -> list[TokenArray]:
        """Return `encode_bytes` of each, much faster than one by one. The arrays are views of one array."""
        batch = encode_any(self._opened.encoder, data, self._byte_ids)
        ids: TokenArray = batch.ids.astype(self.dtype)
        ends = batch.ends.tolist()
        return [ids[start:end] for start, end in zip(ends, ends[1:], strict=False)]

    def encode_with_offsets(self, text: str) -> tuple[TokenArray, NDArray[np.int64]]:
        """Return the ids, and for each the position of its first byte in the UTF-8 text."""
        ids = self.encode(text)
        num_bytes = self.token_bytes[ids]
        return ids, np.cumsum(num_bytes) - num_bytes

    def decode(self, ids: NDArray[np.integer] | Sequence[int]) -> str:
        """Return the text of the ids without special tokens; invalid UTF-8 becomes U+FFFD."""
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: NDArray[np.integer] | Sequence[int]) -> bytes:
        """Return the bytes of the ids, exactly those that were encoded, without special tokens."""
        return b"".join(map(self._opened.vocabulary.__getitem__, np.asarray(ids, np.int64).tolist()))

    @cached_property
    def token_bytes(self) -> NDArray[np.int64]:
        """The number of UTF-8 bytes of each token, 0 for special tokens; int64 [vocab_size]."""
        return token_lengths(self._opened.vocabulary)

    def export(self, path: Path) -> Path:
        """Write the model for use without permcode, and return its path.

        The path is `path` with the suffix of the library: `.json` for Hugging Face tokenizers, `.model` for
        SentencePiece.
        """
        target = path.with_suffix(".json" if self.kind == "bpe" else ".model")
        write_bytes(target, self._opened.exported)
        return target


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the smaller of the two types that can represent every id."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32
