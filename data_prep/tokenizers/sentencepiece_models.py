"""SentencePiece models: training, their file in permcode's `tokenizer.json`, their encoders."""

import base64
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gigatoken
import numpy as np
import sentencepiece
from numpy.typing import NDArray
from tokenizers import Regex, pre_tokenizers

from cluster.storage import canonical_json
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.bpe import FastEncoder
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.encoding import (
    EncodedBatch,
    Encoder,
    Ids,
    encode_exceptions_separately,
    encode_with_byte_tokens,
    join,
)
from data_prep.tokenizers.opened import ForeignTokenizer, OpenedTokenizer, first_byte_ids, token_lengths
from data_prep.tokenizers.splits import training_split
from data_prep.tokenizers.verification import VerifiedEncoder

# The library represents a space by this character, so it cannot distinguish the two.
META_SPACE = "\u2581"
_META_SPACE_BYTES = META_SPACE.encode()
_META_SPACE_PATTERN = re.compile(f"{META_SPACE}+")


class PlainSentencePiece:
    """The reference encoder, the library itself. It encodes U+2581 as a space."""

    name = "sentencepiece"

    # The library has no type annotations.
    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        return join([self._processor.encode_as_numpy(text) for text in texts])


def fast_sentencepiece(model: bytes) -> FastEncoder:
    """Return gigatoken's encoder of a BPE model. It encodes U+2581 as a space."""
    converted = gigatoken.Tokenizer.from_sentencepiece(model)._hf_json
    if converted is None:
        raise ValueError("gigatoken has no converted model")
    return FastEncoder(converted if isinstance(converted, str) else converted.decode())


class MetaSpaceEncoder:
    """Wraps an encoder to distinguish U+2581, which becomes its three byte tokens, from the space."""

    def __init__(self, encoder: Encoder, byte_ids: NDArray[np.uint32]) -> None:
        self._encoder = encoder
        self._byte_ids = byte_ids

    @property
    def name(self) -> str:
        """The name of the wrapped encoder."""
        return self._encoder.name

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        has_meta_space = [_META_SPACE_BYTES in text for text in texts]
        return encode_exceptions_separately(
            texts, has_meta_space, self._encoder.encode, self._encode_with_meta_space
        )

    def _encode_with_meta_space(self, text: bytes) -> Ids:
        return encode_with_byte_tokens(
            text.decode(), _META_SPACE_PATTERN, self._byte_ids, self._encoder.encode
        )


# The key that distinguishes the format from a Hugging Face file.
KIND_KEY = "permcode_tokenizer"


def wrap(kind: str, model: bytes) -> bytes:
    """Return the content of a `tokenizer.json` with the bytes of a `.model` file."""
    content = {KIND_KEY: kind, "model": base64.b64encode(model).decode("ascii")}
    return canonical_json(content).encode()


def open_sentencepiece(content: dict[str, Any]) -> OpenedTokenizer:
    """Load the parsed content of a `tokenizer.json`.

    ForeignTokenizer when the special tokens are not permcode's; any other exception when it is damaged.
    """
    kind, model = str(content[KIND_KEY]), base64.b64decode(content["model"], validate=True)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    if tuple(pieces[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
        raise ForeignTokenizer
    if META_SPACE not in pieces:
        raise ValueError("no token for the space")
    learned = [
        bytes([int(piece[3:5], 16)]) if processor.is_byte(number) else piece.replace(META_SPACE, " ").encode()
        for number, piece in enumerate(pieces)
        if number >= len(SPECIAL_TOKENS)
    ]
    vocabulary = (*[b""] * len(SPECIAL_TOKENS), *learned)
    byte_ids = first_byte_ids(vocabulary)
    plain = MetaSpaceEncoder(PlainSentencePiece(processor), byte_ids)
    if kind != "sentencepiece_bpe":
        # There is no faster encoder for unigram models than the library itself.
        return OpenedTokenizer(kind, vocabulary, plain, model)
    encoder = VerifiedEncoder(
        plain, lambda: MetaSpaceEncoder(fast_sentencepiece(model), byte_ids), token_lengths(vocabulary)
    )
    return OpenedTokenizer(kind, vocabulary, encoder, model)


# Tabs cannot be learned, because the trainer's input uses the character; runs of tabs are predefined instead.
_TAB_RUNS = (4, 3, 2, 1)
# Share of the text whose characters get their own token, most frequent first; the rest are encoded as bytes.
_CHARACTER_COVERAGE = 0.9995


def train_sentencepiece(texts: Iterable[str], config: TokenizerConfig) -> bytes:
    """Train on `texts` and return the content of permcode's `tokenizer.json` with a SentencePiece model.

    Characters that the vocabulary lacks become byte tokens; there is no normalisation and no added space. The rules of
    `config` apply to every learned token; encoding does not split text first, so it may not group digits from the left.
    """
    tabs = ["\t" * run for run in _TAB_RUNS if run <= config.max_whitespace_run]
    room = config.vocab_size - len(SPECIAL_TOKENS) - 256 - len(tabs)
    pieces = _keep_frequent_characters(_count_pieces(texts, config), max_characters=room // 2)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{piece}\t{count}" for piece, count in pieces),
        input_format="tsv",
        model_writer=model,
        model_type=config.kind.removeprefix("sentencepiece_"),
        vocab_size=config.vocab_size,
        hard_vocab_limit=False,
        pad_id=0,
        pad_piece=SPECIAL_TOKENS[0],
        control_symbols=list(SPECIAL_TOKENS[1:-1]),
        # The library requires an unknown token. With byte tokens nothing is ever unknown.
        unk_id=len(SPECIAL_TOKENS) - 1,
        unk_piece=SPECIAL_TOKENS[-1],
        bos_id=-1,
        eos_id=-1,
        user_defined_symbols=tabs,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_by_unicode_script=False,
        split_by_number=False,
        split_digits=False,
        max_sentencepiece_length=config.max_token_bytes,
        max_sentence_length=1 << 30,
        # Several threads would add sums in varying order, which changes the last digits.
        num_threads=1,
        minloglevel=2,
    )
    return wrap(config.kind, model.getvalue())


def _count_pieces(texts: Iterable[str], config: TokenizerConfig) -> Counter[str]:
    cuts = pre_tokenizers.Split(Regex(training_split(config)), behavior="isolated")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(piece for piece, _ in cuts.pre_tokenize_str(text))
    pieces: Counter[str] = Counter()
    for piece, count in counts.items():
        # Characters that the trainer uses as its own marks cannot be learned.
        if not {"\t", "\0", META_SPACE} & set(piece):
            for part in _split_piece(piece, config.max_token_bytes):
                pieces[part] += count
    return pieces


def _split_piece(piece: str, max_bytes: int) -> list[str]:
    """Split the piece into parts of at most `max_bytes` of UTF-8, each as long as possible."""
    if len(piece.encode()) <= max_bytes:
        return [piece]
    parts, num_bytes = [""], 0
    for character in piece:
        size = len(character.encode())
        if num_bytes + size > max_bytes:
            parts.append("")
            num_bytes = 0
        parts[-1] += character
        num_bytes += size
    return parts


def _keep_frequent_characters(counts: Mapping[str, int], max_characters: int) -> list[tuple[str, int]]:
    """Return the pieces that consist of frequent characters only, in an order that depends only on the counts."""
    characters: Counter[str] = Counter()
    for piece, count in counts.items():
        for character in piece:
            characters[character] += count
    # Without a token for the space, a space would be encoded as the bytes of the mark that represents it.
    kept = {" "}
    total, seen = characters.total(), 0
    for character, count in sorted(characters.items(), key=lambda one: (-one[1], one[0])):
        if seen >= _CHARACTER_COVERAGE * total or len(kept) >= max_characters:
            break
        kept.add(character)
        seen += count
    pieces = [(piece, count) for piece, count in counts.items() if kept.issuperset(piece)]
    return sorted([*pieces, (" ", 1)], key=lambda one: (-one[1], one[0]))
