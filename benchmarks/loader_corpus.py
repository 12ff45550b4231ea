"""Write one corpus of tokens for all loaders of `make bench-loader`: as prep writes it, and as one file of documents.

    python -m benchmarks.loader_corpus FOLDER [--million-tokens 64]

The tokens are random, which makes no difference to a loader; documents have the lengths of code (log-normal, 3,600
tokens on average, which is 12.6 KB). The peers write their own formats from `documents.npz`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.storage import sha256_bytes, write_bytes
from data_prep.documents import DocumentMeta, document_id
from data_prep.finished.manifest import Manifest, Shard, write_manifest
from data_prep.steps.finishing import count_sources, write_index
from data_prep.steps.shards import Sample, write_tar

BLOCK_TOKENS = 1 << 20
BLOCKS_PER_TAR = 4
_VOCAB = 32_000
_MEAN_TOKENS = 3_600
_SIGMA = 1.2
_DOCUMENTS_PER_REPOSITORY = 40


def write_loader_corpus(folder: Path, num_tokens: int) -> None:
    """Write the prep folder and `documents.npz` (tokens uint16, starts int64) with the same documents."""
    random = np.random.default_rng(0)
    scale = np.log(_MEAN_TOKENS) - _SIGMA**2 / 2
    sizes = np.maximum(8, random.lognormal(scale, _SIGMA, 2 * num_tokens // _MEAN_TOKENS)).astype(np.int64)
    ends = np.cumsum(sizes)
    num_documents = int(np.searchsorted(ends, num_tokens))
    starts = (ends - sizes)[:num_documents]
    tokens = random.integers(0, _VOCAB, int(ends[num_documents - 1]), np.uint16)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "documents.npz", tokens=tokens, starts=starts)
    write_bytes(folder / "tokenizer.json", b"{}")
    blocks = list(_blocks(tokens, starts))
    shards = tuple(
        _write_shard(folder, number, blocks[first : first + BLOCKS_PER_TAR])
        for number, first in enumerate(range(0, len(blocks), BLOCKS_PER_TAR))
    )
    splits: dict[str, tuple[Shard, ...]] = {"train": shards, "validation": (), "test": ()}
    manifest = Manifest(
        config_sha256="0" * 64,
        seed=0,
        tokenizer_sha256=sha256_bytes(b"{}"),
        vocab_size=_VOCAB,
        ledger_sha256="0" * 64,
        sources=count_sources(splits, {"bench": 1.0}),
        splits=splits,
    )
    write_manifest(folder, manifest)


def _blocks(
    tokens: NDArray[np.uint16], starts: NDArray[np.int64]
) -> Iterator[tuple[list[NDArray[np.uint16]], int]]:
    """Yield the documents of each block, and the number of the first."""
    documents = np.split(tokens, starts[1:])
    cuts = np.searchsorted(starts, np.arange(BLOCK_TOKENS, len(tokens), BLOCK_TOKENS)).tolist()
    for first, end in zip([0, *cuts], [*cuts, len(documents)], strict=True):
        yield documents[first:end], first


def _write_shard(folder: Path, number: int, blocks: list[tuple[list[NDArray[np.uint16]], int]]) -> Shard:
    name = f"train-{number:05d}"
    samples = [
        Sample(f"{name}-{place:05d}", documents, [_meta(first + i, d) for i, d in enumerate(documents)])
        for place, (documents, first) in enumerate(blocks)
    ]
    written, tar_sha256 = write_tar(folder / "shards" / f"{name}.tar", samples)
    return write_index(folder, name, "bench", written, tar_sha256)


def _meta(number: int, tokens: NDArray[np.uint16]) -> DocumentMeta:
    repository, path = f"package-{number // _DOCUMENTS_PER_REPOSITORY}", f"source/module_{number}.py"
    return DocumentMeta(
        id=document_id("bench", repository, path, ""),
        source="bench",
        repository=repository,
        path=path,
        language="Python",
        licence="MIT",
        sha256=sha256_bytes(tokens.tobytes()),
        num_bytes=round(3.5 * len(tokens)),
    )


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--million-tokens", type=float, default=64)
    arguments = parser.parse_args()
    write_loader_corpus(arguments.folder, round(arguments.million_tokens * 1e6))


if __name__ == "__main__":
    main()
