"""Read files, decode them and try the rules on them."""

import gc
from collections.abc import Sequence
from pathlib import Path

from cluster.storage import sha256_bytes
from data_prep.config import FiltersConfig
from data_prep.decoding import decode
from data_prep.documents import SourceFile
from data_prep.filters.registry import first_rejection
from data_prep.text_store import ReadOutcome, write_outcomes


def cut_into_partitions(files: Sequence[SourceFile], num_partitions: int) -> list[tuple[SourceFile, ...]]:
    """Consecutive runs of files of about equal bytes; none is empty."""
    total_bytes = sum(file.num_bytes for file in files)
    partitions: list[list[SourceFile]] = [[]]
    done_bytes = 0
    for file in files:
        # The small offset keeps a corpus of empty files in one part instead of dividing by zero.
        wanted = int(done_bytes * num_partitions / (total_bytes + 1))
        if partitions[-1] and wanted >= len(partitions):
            partitions.append([])
        partitions[-1].append(file)
        done_bytes += file.num_bytes
    return [tuple(partition) for partition in partitions if partition]


def read_partition_task(files: tuple[SourceFile, ...], config: FiltersConfig, output: Path) -> None:
    """Read and filter `files`; write their outcomes, in the same order, to `output`."""
    # Syntax trees hold no cycles; looking for some while a tree grows is a quarter of the parsing time.
    gc.disable()
    try:
        outcomes = [read_file(file, config) for file in files]
    finally:
        gc.enable()
    write_outcomes(output, outcomes)


def read_file(file: SourceFile, config: FiltersConfig) -> ReadOutcome:
    """The file's text, or the first rule that drops it: readable, file_size, decodable, then the filters."""
    try:
        with Path(file.absolute).open("rb") as opened:
            if not config.min_file_bytes <= file.num_bytes <= config.max_file_bytes:
                return ReadOutcome(None, 0, None, "file_size", float(file.num_bytes))
            raw = opened.read()
    except OSError as error:
        return ReadOutcome(None, 0, None, "readable", float(error.errno or 0))
    decoded = decode(raw, file.language)
    if decoded is None:
        return ReadOutcome(None, 0, None, "decodable")
    digest = sha256_bytes(decoded.data)
    rejection = first_rejection(decoded, config)
    if rejection is not None:
        return ReadOutcome(None, len(decoded.data), digest, *rejection)
    return ReadOutcome(decoded.text, len(decoded.data), digest)
