"""Train the tokenizer on code."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from cluster.storage import write_bytes
from data_prep.config import TokenizerConfig
from data_prep.documents import SPECIAL_TOKENS
from data_prep.text_store import TextRef, read_texts

# Pieces that merges never cross, first match wins; together they cover every character:
#   a word (letters, marks, underscores) with the space before it,
#   a single digit, so that numbers are spelled out,
#   punctuation with the space before it: never glued onto an identifier,
#   whitespace: a line break with the indentation after it can be one token.
PIECES = r" ?[\p{L}\p{M}_]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}_]+|\s+"
# Keeps rulers ("=======") of every length from taking a token each.
MAX_TOKEN_BYTES = 32


def train_tokenizer_task(refs: tuple[TextRef, ...], config: TokenizerConfig, output: Path) -> None:
    """Train on the texts that `refs` name, in their order, and write `tokenizer.json` to `output`."""
    tokenizer = train_tokenizer(read_texts(refs), config.vocab_size)
    write_bytes(output, tokenizer.to_str().encode())


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE with the special tokens first; the same texts give the same tokenizer.

    The vocabulary is smaller than `vocab_size` when the texts have no more pairs to merge.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_BYTES,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
