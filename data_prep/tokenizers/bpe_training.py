"""Training of byte-level BPE."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.splits import ENCODING_SPLITS, pre_tokenizer, training_split


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
