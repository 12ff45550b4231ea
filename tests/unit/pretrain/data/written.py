"""Prep folders of random tokens, in blocks of chosen sizes: no text, so no tokenizer has to be trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cluster.storage import sha256_bytes, write_bytes
from data_prep.documents import DocumentMeta
from data_prep.finished.manifest import Manifest, Shard, write_manifest
from data_prep.steps.finishing import count_sources, write_index
from data_prep.steps.shards import Sample, write_tar

Sources = Mapping[str, tuple[float, Sequence[Sequence[int]]]]
"""{source: (weight, tars), a tar as its blocks' sizes in tokens}."""

VOCAB = 5000


def write_tokens(folder: Path, sources: Sources, seed: int = 0, tokenizer: bytes = b"{}") -> Path:
    """A folder whose train split is that. Documents have 1 to 20 tokens, repositories 1 to 5 documents."""
    random = np.random.default_rng(seed)
    write_bytes(folder / "tokenizer.json", tokenizer)
    shards: list[Shard] = []
    for source, (_, tars) in sources.items():
        for sizes in tars:
            name = f"train-{len(shards):05d}"
            samples = [_sample(f"{name}-{i:05d}", source, size, random) for i, size in enumerate(sizes)]
            shards.append(_write_tar(folder, name, source, samples))
    splits: dict[str, tuple[Shard, ...]] = {"train": tuple(shards), "validation": (), "test": ()}
    weights = {source: weight for source, (weight, _) in sources.items()}
    manifest = Manifest(
        config_sha256="0" * 64,
        seed=0,
        tokenizer_sha256=sha256_bytes(tokenizer),
        vocab_size=VOCAB,
        ledger_sha256="0" * 64,
        sources=count_sources(splits, weights),
        splits=splits,
    )
    write_manifest(folder, manifest)
    return folder


def _sample(key: str, source: str, num_tokens: int, random: np.random.Generator) -> Sample:
    cuts = np.flatnonzero(random.random(num_tokens - 1) < 0.1) + 1
    documents = np.split(random.integers(0, VOCAB, num_tokens, np.uint16), cuts)
    repository_starts = np.cumsum(random.random(len(documents)) < 0.3)
    metas = [
        DocumentMeta(
            id=sha256_bytes(f"{key}:{i}".encode())[:16],
            source=source,
            repository=f"{key}/{repository_starts[i]}",
            path=f"{i}.py",
            language="Python",
            licence=None,
            sha256="0" * 64,
            num_bytes=3 * len(tokens),
        )
        for i, tokens in enumerate(documents)
    ]
    return Sample(key, documents, metas)


def _write_tar(folder: Path, name: str, source: str, samples: Sequence[Sample]) -> Shard:
    tar = folder / "shards" / f"{name}.tar"
    blocks, tar_sha256 = write_tar(tar, samples)
    return write_index(folder, name, source, blocks, tar_sha256)
