"""Train the tokenizer on code."""

from collections.abc import Iterable

from data_prep.tokenizers.bpe_training import train_bpe
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.sentencepiece_training import train_sentencepiece


def train_tokenizer(texts: Iterable[bytes], config: TokenizerConfig) -> bytes:
    """The content of `tokenizer.json`: the same for the same texts in the same order, on any machine.

    `texts` are UTF-8; what is none is left out. The vocabulary is smaller than `config.vocab_size` when the
    texts have too little to learn from.
    """
    decoded = (text.decode(errors="ignore") for text in texts)
    return train_bpe(decoded, config) if config.kind == "bpe" else train_sentencepiece(decoded, config)
