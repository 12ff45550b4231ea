"""Two encoders of the same byte-level BPE: a reference encoder, and a fast one that must agree with it."""

import json
from collections.abc import Sequence

import gigatoken
import numpy as np
from tokenizers import Tokenizer

from data_prep.tokenizers.encoding import EncodedBatch, join

# gigatoken caches every piece that it has encoded. It is recreated after this much text to bound the memory.
_RESET_AFTER_BYTES = 64 << 20
# Entries of the plain encoder's cache of words.
_PLAIN_CACHE_WORDS = 10_000


class PlainEncoder:
    """Hugging Face tokenizers: slow, and the reference."""

    name = "tokenizers"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Not stored in the file, so it is set at every load.
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.model._resize_cache(_PLAIN_CACHE_WORDS)

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        # One by one, because a batch would use all cores, which other workers need.
        encode = self._tokenizer.encode
        return join(
            [np.array(encode(text.decode(), add_special_tokens=False).ids, np.uint32) for text in texts]
        )


class FastEncoder:
    """gigatoken on the content of a `tokenizer.json`, without its special tokens, which it would find in text."""

    name = "gigatoken"

    def __init__(self, tokenizer_json: str) -> None:
        content = json.loads(tokenizer_json)
        content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
        self._content = json.dumps(content)
        self._num_bytes = 0
        self._encoder = gigatoken.Tokenizer.from_json(self._content)

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        if self._num_bytes > _RESET_AFTER_BYTES:
            self._encoder = gigatoken.Tokenizer.from_json(self._content)
            self._num_bytes = 0
        self._num_bytes += sum(map(len, texts))
        # Not its batch call, which is no faster and has a separate cache.
        return join([self._encoder.encode(text) for text in texts])
