"""Byte-level BPE: training, Hugging Face's `tokenizer.json`, a plain encoder and a fast one that must agree with it."""

import json
from collections.abc import Iterable, Sequence

import gigatoken
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.encoding import EncodedBatch, join
from data_prep.tokenizers.opened import ForeignTokenizer, OpenedTokenizer, token_lengths
from data_prep.tokenizers.splits import ENCODING_SPLITS, pre_tokenizer, training_split
from data_prep.tokenizers.verification import VerifiedEncoder

# gigatoken caches every piece that it has encoded. It is recreated after this much text to bound the memory.
RESET_AFTER_BYTES = 64 << 20
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
        if self._num_bytes > RESET_AFTER_BYTES:
            self._encoder = gigatoken.Tokenizer.from_json(self._content)
            self._num_bytes = 0
        self._num_bytes += sum(map(len, texts))
        # Not its batch call, which is no faster and has a separate cache.
        return join([self._encoder.encode(text) for text in texts])


def open_bpe(content: str) -> OpenedTokenizer:
    """Load the content of a `tokenizer.json`.

    ForeignTokenizer when the special tokens are not permcode's; any other exception when it cannot be parsed.
    """
    tokenizer = Tokenizer.from_str(content)
    tokens: list[str] = [tokenizer.id_to_token(i) or "" for i in range(tokenizer.get_vocab_size())]
    if tuple(tokens[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
        raise ForeignTokenizer
    byte_of = _byte_of_character()
    learned = [bytes(byte_of[character] for character in token) for token in tokens[len(SPECIAL_TOKENS) :]]
    vocabulary = (*[b""] * len(SPECIAL_TOKENS), *learned)
    encoder = VerifiedEncoder(
        PlainEncoder(tokenizer), lambda: FastEncoder(content), token_lengths(vocabulary)
    )
    return OpenedTokenizer("bpe", vocabulary, encoder, content.encode())


def _byte_of_character() -> dict[str, int]:
    """Return the byte of each character of the byte-level alphabet."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + number): byte for number, byte in enumerate(others)})
    if set(table) != set(pre_tokenizers.ByteLevel.alphabet()):
        raise AssertionError("tokenizers changed the byte-level alphabet")
    return table


def train_bpe(texts: Iterable[str], config: TokenizerConfig) -> bytes:
    """Train on `texts` and return the content of a Hugging Face `tokenizer.json`, special tokens first.

    The vocabulary is smaller than `vocab_size` if the texts have no more pairs to merge.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer((training_split(config),))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=config.max_token_bytes,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = pre_tokenizer(ENCODING_SPLITS)
    content: str = tokenizer.to_str()
    return content.encode()
