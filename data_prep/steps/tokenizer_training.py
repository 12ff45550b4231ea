"""Training of the tokenizer on a sample of the corpus."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.storage import write_bytes
from data_prep.corpus.rows import Corpus
from data_prep.corpus.text_store import read_texts
from data_prep.pseudo_random import keyed_hash
from data_prep.sources.config import MixtureConfig, SourceConfig
from data_prep.tokenizers.bpe import train_bpe
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.sentencepiece_models import train_sentencepiece


def train_tokenizer(texts: Iterable[bytes], config: TokenizerConfig) -> bytes:
    """Train a tokenizer and return the content of its `tokenizer.json`.

    It is the same for the same texts in the same order, on any machine. `texts` are UTF-8; invalid bytes are ignored.
    The vocabulary is smaller than `config.vocab_size` if there is too little text.
    """
    decoded = (text.decode(errors="ignore") for text in texts)
    return train_bpe(decoded, config) if config.kind == "bpe" else train_sentencepiece(decoded, config)


def weighted_sample(
    corpus: Corpus, rows: NDArray[np.int64], weights: Mapping[str, float], max_bytes: int, seed: int
) -> NDArray[np.int64]:
    """Return a sample of `rows`, in their order, with about `max_bytes` of text.

    Each source has a share proportional to its weight times its bytes; its documents are taken in keyed-hash order.
    """
    sources, ids = corpus.strings("source"), corpus.strings("id")
    sizes = corpus.integers("num_text_bytes")
    rows_of = {name: rows[sources[rows] == name] for name in sorted(weights)}
    weighted = {name: weights[name] * float(sizes[own].sum()) for name, own in rows_of.items()}
    total = sum(weighted.values())
    chosen: list[int] = []
    for name, own in rows_of.items():
        left_bytes = max_bytes * weighted[name] / total if total else 0.0
        for row in sorted(own.tolist(), key=lambda row: keyed_hash(seed, "tokenizer sample", str(ids[row]))):
            if left_bytes <= 0:
                break
            chosen.append(row)
            left_bytes -= float(sizes[row])
    is_chosen = np.isin(rows, np.array(chosen, np.int64))
    sample: NDArray[np.int64] = rows[is_chosen]
    return sample


def source_weights(config: SourceConfig) -> dict[str, float]:
    """Return the mixture weight by source name, as named in the work units."""
    if isinstance(config, MixtureConfig):
        return {name: part.weight for name, part in config.parts.items()}
    return {config.kind: config.weight}


def train_tokenizer_task(texts: Sequence[tuple[str, int]], config: TokenizerConfig, output: Path) -> None:
    """Task: train on the texts (part, row), in their order, and write the tokenizer's file to `output`."""
    write_bytes(output, train_tokenizer(read_texts((Path(part), row) for part, row in texts), config))
