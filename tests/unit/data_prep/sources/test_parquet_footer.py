"""Damaged footers, some of which make pyarrow's metadata abort the process."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import UserError
from data_prep.sources.config import ParquetConfig
from data_prep.sources.limits import ReadLimits
from data_prep.sources.parquet_rows import check_footer
from data_prep.sources.plan import plan_units, read_unit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = {"content": [f"x = {n}\n" for n in range(30)], "path": [str(n) for n in range(30)]}
    pq.write_table(pa.table(rows), tmp_path / "x.parquet", row_group_size=10)
    return tmp_path / "x.parquet"


def test_no_flipped_byte_of_a_footer_ends_the_process_or_raises(path: Path) -> None:
    data, rng = path.read_bytes(), random.Random(0)
    footer_bytes = 8 + int.from_bytes(data[-8:-4], "little")
    num_refused = 0
    for place in rng.sample(range(len(data) - footer_bytes, len(data)), 300):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            for unit in plan_units(ParquetConfig(urls=(str(path),))):
                assert all(file.data or file.rejection for file in read_unit(unit, ReadLimits()))
        except UserError:
            num_refused += 1
    assert num_refused > 10


def test_valid_footers_pass_without_reading(path: Path) -> None:
    metadata = pq.ParquetFile(path).metadata
    path.unlink()
    check_footer(metadata, list(range(metadata.num_columns)))
