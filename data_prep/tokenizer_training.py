"""Training of the tokenizer."""

from collections.abc import Iterable

from data_prep.tokenizers.bpe_training import train_bpe
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.sentencepiece_training import train_sentencepiece


def train_tokenizer(texts: Iterable[bytes], config: TokenizerConfig) -> bytes:
    """Train a tokenizer and return the content of its `tokenizer.json`.

    It is the same for the same texts in the same order, on any machine. `texts` are UTF-8; invalid bytes are ignored.
    The vocabulary is smaller than `config.vocab_size` if there is too little text.
    """
    decoded = (text.decode(errors="ignore") for text in texts)
    return train_bpe(decoded, config) if config.kind == "bpe" else train_sentencepiece(decoded, config)
