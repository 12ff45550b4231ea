"""SentencePiece models in permcode's `tokenizer.json`."""

import base64
from typing import Any

import sentencepiece

from cluster.storage import canonical_json
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.opened import ForeignTokenizer, OpenedTokenizer, first_byte_ids, token_lengths
from data_prep.tokenizers.sentencepiece_encoders import (
    META_SPACE,
    MetaSpaceEncoder,
    PlainSentencePiece,
    fast_sentencepiece,
)
from data_prep.tokenizers.verified import VerifiedEncoder

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
