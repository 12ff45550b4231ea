"""What lanes read, said as plainly as can be: whole epochs in lists, tars read by tarfile."""

import io
import itertools
import json
import math
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from pretrain.randomness import keyed_generator


@dataclass(frozen=True)
class PlainToken:
    """A token, and the document and the run of one repository that it is of, each as often as it is read."""

    token: int
    document: tuple[object, ...]
    group: tuple[object, ...]


@dataclass(frozen=True)
class PlainBlock:
    """The tokens of a block with their documents' ids and the places of their repositories, and its source."""

    tokens: list[tuple[int, str, int]]
    source: tuple[int, str]
    weight: Fraction


def plain_blocks(folders: Sequence[tuple[Path, float]]) -> list[PlainBlock]:
    """The train split's blocks of each (folder, weight)."""
    found = []
    for number, (folder, weight) in enumerate(folders):
        manifest = json.loads((folder / "manifest.json").read_text())
        for shard in manifest["splits"]["train"]:
            source_weight = manifest["sources"][shard["source"]]["weight"]
            exact = Fraction(round(weight * source_weight * 2**32), 2**32)
            with tarfile.open(folder / "shards" / f"{shard['name']}.tar") as tar:
                members = [tar.extractfile(member).read() for member in tar.getmembers()]  # type: ignore[union-attr]
            for tokens, docs, meta in zip(members[::3], members[1::3], members[2::3], strict=True):
                named = _named(np.load(io.BytesIO(tokens)), np.load(io.BytesIO(docs)), json.loads(meta))
                found.append(PlainBlock(named, (number, shard["source"]), exact))
    return found


def _named(tokens: np.ndarray, starts: np.ndarray, meta: dict) -> list[tuple[int, str, int]]:
    named, run = [], -1
    bounds = [*starts.tolist(), len(tokens)]
    for number, document in enumerate(meta["documents"]):
        before = meta["documents"][number - 1] if number else None
        run += before is None or before["repository"] != document["repository"]
        for token in tokens[bounds[number] : bounds[number + 1]].tolist():
            named.append((token, document["id"], run))
    return named


def num_readings(block: PlainBlock, phase: Fraction, epoch: int) -> int:
    """How many times the epoch reads the block."""
    return math.floor(block.weight * (epoch + 1) + phase) - math.floor(block.weight * epoch + phase)


def phases(blocks: Sequence[PlainBlock], seed: int) -> list[Fraction]:
    """Where each block's count begins."""
    sources = list(dict.fromkeys(block.source for block in blocks))
    of_source = {
        source: keyed_generator(seed, "mixture phase", number).permutation(
            sum(block.source == source for block in blocks)
        )
        for number, source in enumerate(sources)
    }
    places = {source: iter(order.tolist()) for source, order in of_source.items()}
    return [
        Fraction(next(places[block.source]) * 2**32 // len(of_source[block.source]), 2**32)
        for block in blocks
    ]


def epoch_stream(blocks: Sequence[PlainBlock], seed: int, epoch: int, shuffle: bool) -> list[PlainToken]:
    """All tokens of an epoch, one after the other."""
    readings = [
        (number, repeat)
        for number, (block, phase) in enumerate(zip(blocks, phases(blocks, seed), strict=True))
        for repeat in range(num_readings(block, phase, epoch) if shuffle else 1)
    ]
    order = np.arange(len(readings))
    if shuffle:
        order = keyed_generator(seed, "block order", epoch).permutation(len(readings))
    return [
        PlainToken(token, (epoch, *readings[i], document), (epoch, *readings[i], run))
        for i in order.tolist()
        for token, document, run in blocks[readings[i][0]].tokens
    ]


def steps(
    blocks: Sequence[PlainBlock], lanes: int, segment_tokens: int, seed: int, shuffle: bool, num_epochs: int
) -> list[list[list[PlainToken]]]:
    """[step][lane] -> tokens, of the first epochs."""
    found = []
    for epoch in range(num_epochs):
        stream = epoch_stream(blocks, seed, epoch, shuffle)
        num_steps = len(stream) // (lanes * segment_tokens)
        slices = [stream[lane * num_steps * segment_tokens :] for lane in range(lanes)]
        for step in range(num_steps):
            place = slice(step * segment_tokens, (step + 1) * segment_tokens)
            found.append([tokens[place] for tokens in slices])
    return found


def same_partition(numbers: Sequence[int], names: Sequence[object]) -> bool:
    """Whether two tokens have the same number exactly when they have the same name."""
    pairs = set(zip(numbers, names, strict=True))
    return len(pairs) == len(set(numbers)) == len(set(names))


def flat(read: list[list[list[PlainToken]]], name: str) -> list[object]:
    """One field of every token, step by step and lane by lane."""
    return [
        getattr(token, name)
        for token in itertools.chain.from_iterable(itertools.chain.from_iterable(lanes) for lanes in read)
    ]
