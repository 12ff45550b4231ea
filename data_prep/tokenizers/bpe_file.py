"""Loading of a Hugging Face `tokenizer.json`."""

from tokenizers import Tokenizer, pre_tokenizers

from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.bpe_encoders import FastEncoder, PlainEncoder
from data_prep.tokenizers.opened import ForeignTokenizer, OpenedTokenizer, token_lengths
from data_prep.tokenizers.verified import VerifiedEncoder


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
