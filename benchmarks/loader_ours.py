"""Time our lanes, from opening the corpus on: tokens, groups, documents and checksums, all blocks verified.

python -m benchmarks.loader_ours FOLDER --lanes 16 --segment-tokens 256 [--cursor 0] [--max-tokens N]
"""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.loader_timing import time_batches
from benchmarks.prep_timing import use_one_core
from data_prep.finished.prepared import open_prepared
from pretrain.data.lanes import LaneReader
from pretrain.data.prefetch import LaneFeed


def batch_sizes(folder: Path, lanes: int, segment_tokens: int, cursor: int) -> Iterator[int]:
    """Yield the number of tokens of every step from `cursor` on."""
    reader = LaneReader(open_prepared(folder), "train", lanes, segment_tokens, seed=0)
    feed = LaneFeed(reader, range(lanes), cursor)
    for step in itertools.count(cursor):
        yield feed.take(step).tokens_BL.size


def main() -> None:
    """Time one pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--segment-tokens", type=int, default=256)
    parser.add_argument("--cursor", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=64_000_000)
    arguments = parser.parse_args()
    use_one_core()
    sizes = batch_sizes(arguments.folder, arguments.lanes, arguments.segment_tokens, arguments.cursor)
    time_batches(sizes, arguments.max_tokens).print()


if __name__ == "__main__":
    main()
