"""Time the peers' loaders over the same documents, in the peers' own environment (`benchmarks/loader_peers.txt`).

    .venv-bench-loader/bin/python -m benchmarks.loader_peers write FOLDER
    .venv-bench-loader/bin/python -m benchmarks.loader_peers PEER FOLDER [--max-tokens N]

Each yields int64 arrays of tokens, as a model needs them, in one process and without workers, in two forms: a document
per sample, unchanged, and prepared samples of 2,048 tokens without document boundaries. Neither form is packed into
batches of segments, and none of the peers verifies a checksum when it reads local files.
"""

import argparse
import functools
import importlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.loader_timing import time_batches
from benchmarks.prep_timing import use_one_core

_SAMPLE_TOKENS = 2048
_TAR_TOKENS = 4 << 20
_SHARD_BYTES = 8 << 20


def documents(folder: Path) -> list[NDArray[np.uint16]]:
    """Return the corpus, document by document."""
    with np.load(folder / "documents.npz") as stored:
        return np.split(stored["tokens"], stored["starts"][1:])


def samples(folder: Path) -> list[NDArray[np.uint16]]:
    """Return the corpus in pieces of equal length, without regard to documents."""
    with np.load(folder / "documents.npz") as stored:
        tokens = stored["tokens"]
    return list(tokens[: len(tokens) // _SAMPLE_TOKENS * _SAMPLE_TOKENS].reshape(-1, _SAMPLE_TOKENS))


@functools.cache
def import_streaming() -> Any:
    """Import mosaicml-streaming, which imports torchvision for its image data sets."""
    import torch

    if not torch.backends.cuda.is_built():
        # torchvision's compiled part does not load with a CPU-only torch, and without it these must be defined.
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor"
            )
    import streaming

    return streaming


def write_webdataset(pieces: list[NDArray[np.uint16]], folder: Path) -> None:
    """Write tars of `.npy` members."""
    folder.mkdir(parents=True)
    tar, left, number = None, 0, 0
    for place, piece in enumerate(pieces):
        if tar is None or left <= 0:
            if tar is not None:
                tar.close()
            tar, left, number = tarfile.open(folder / f"{number:05d}.tar", "w"), _TAR_TOKENS, number + 1
        buffer = io.BytesIO()
        np.save(buffer, piece)
        info = tarfile.TarInfo(f"{place:08d}.npy")
        info.size = buffer.tell()
        buffer.seek(0)
        tar.addfile(info, buffer)
        left -= len(piece)
    if tar is not None:
        tar.close()


def write_mosaic(pieces: list[NDArray[np.uint16]], folder: Path) -> None:
    """Write MDS with checksums, arrays in its own encoding."""
    with import_streaming().MDSWriter(
        out=str(folder), columns={"tokens": "ndarray:uint16"}, size_limit=_SHARD_BYTES, hashes=["xxh64"]
    ) as writer:
        for piece in pieces:
            writer.write({"tokens": piece})


def write_litdata(pieces: list[NDArray[np.uint16]], folder: Path) -> None:
    """Write litdata's chunks, one sample per piece."""
    from litdata.streaming import Cache

    folder.mkdir(parents=True)
    cache = Cache(str(folder), chunk_bytes=_SHARD_BYTES)
    for place, piece in enumerate(pieces):
        cache[place] = {"tokens": piece}
    cache.done()
    cache.merge()


def read_webdataset(folder: Path) -> Iterator[int]:
    """Yield the sizes of all samples, with shuffled shards and unshuffled samples."""
    import webdataset

    urls = sorted(map(str, folder.glob("*.tar")))
    for sample in webdataset.WebDataset(urls, shardshuffle=len(urls), seed=0).decode():
        yield sample["npy"].astype(np.int64).size


def read_mosaic(folder: Path) -> Iterator[int]:
    """Yield the sizes of all samples, shuffled as its documentation recommends."""
    dataset = import_streaming().StreamingDataset(local=str(folder), shuffle=True, batch_size=1)
    for sample in dataset:
        yield sample["tokens"].astype(np.int64).size


def read_litdata(folder: Path) -> Iterator[int]:
    """Yield the sizes of all samples, shuffled."""
    import litdata

    for sample in litdata.StreamingDataset(str(folder), shuffle=True):
        yield sample["tokens"].astype(np.int64).size


Pieces = Callable[[Path], list[NDArray[np.uint16]]]
Write = Callable[[list[NDArray[np.uint16]], Path], None]
Read = Callable[[Path], Iterator[int]]
FORMS: dict[str, Pieces] = {"documents": documents, "samples": samples}
PEERS: dict[str, tuple[Write, Read]] = {
    "webdataset": (write_webdataset, read_webdataset),
    "mosaicml-streaming": (write_mosaic, read_mosaic),
    "litdata": (write_litdata, read_litdata),
}


def main() -> None:
    """Write the peers' formats, or time one of them."""
    names = [f"{peer}:{form}" for peer in PEERS for form in FORMS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=["write", *names])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-tokens", type=int, default=64_000_000)
    arguments = parser.parse_args()
    if arguments.peer == "write":
        for form, pieces in FORMS.items():
            for peer, (write, _) in PEERS.items():
                write(pieces(arguments.folder), arguments.folder / "peers" / f"{peer}-{form}")
        return
    use_one_core()
    peer, form = arguments.peer.split(":")
    if peer == "mosaicml-streaming":  # the import is not timed
        import_streaming()
    else:
        importlib.import_module(peer)
    sizes = PEERS[peer][1](arguments.folder / "peers" / f"{peer}-{form}")
    time_batches(sizes, arguments.max_tokens).print()


if __name__ == "__main__":
    main()
