"""Configs and plans of all kinds."""

import pickle
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from data_prep.sources.config import MixtureConfig, SourceConfig
from data_prep.sources.limits import RATIO_GRACE_BYTES, ReadLimits
from data_prep.sources.plan import plan_units, read_unit

_ADAPTER: TypeAdapter[SourceConfig] = TypeAdapter(SourceConfig)


@pytest.fixture
def mixture(tmp_path: Path) -> MixtureConfig:
    (tmp_path / "trees" / "r").mkdir(parents=True)
    (tmp_path / "trees" / "r" / "a.py").write_text("a")
    (tmp_path / "x.jsonl").write_text('{"content": "b"}')
    parts = {
        "zeta": {"kind": "directory", "path": str(tmp_path / "trees"), "weight": 2},
        "alpha": {"kind": "jsonl", "urls": str(tmp_path / "x.jsonl")},
        "again": {"kind": "jsonl", "urls": [str(tmp_path / "x.jsonl")], "weight": 0.5},
    }
    config = _ADAPTER.validate_python({"kind": "mixture", "parts": parts})
    assert isinstance(config, MixtureConfig)
    return config


def test_parts_of_a_mixture_are_planned_under_their_names_in_order(mixture: MixtureConfig) -> None:
    units = plan_units(mixture)
    assert [unit.source for unit in units] == ["zeta", "alpha", "again"]
    assert [[file.data for file in read_unit(unit, ReadLimits())] for unit in units] == [
        [b"a"],
        [b"b"],
        [b"b"],
    ]
    assert [part.weight for part in mixture.parts.values()] == [2.0, 1.0, 0.5]


def test_plans_can_be_pickled_and_configs_dumped_as_json(mixture: MixtureConfig) -> None:
    units = plan_units(mixture)
    assert pickle.loads(pickle.dumps(units)) == units
    assert _ADAPTER.validate_json(mixture.model_dump_json()) == mixture


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "tape"},
        {"kind": "directory", "path": "x", "weight": 0},
        {"kind": "jsonl", "urls": []},
        {"kind": "jsonl", "urls": "x", "preset": "the_stack_v1", "columns": {"content": "c"}},
        {"kind": "mixture", "parts": {}},
        {"kind": "mixture", "parts": {"a/b": {"kind": "directory", "path": "x"}}},
        {"kind": "mixture", "parts": {"a": {"kind": "mixture", "parts": {}}}},
    ],
)
def test_invalid_configs_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        _ADAPTER.validate_python(values)


def test_archive_limits() -> None:
    limits = ReadLimits(max_archive_ratio=10, max_archive_bytes=1 << 30)
    assert limits.allows_unpacked(0, RATIO_GRACE_BYTES)
    assert not limits.allows_unpacked(0, RATIO_GRACE_BYTES + 1)
    assert limits.allows_unpacked(10 << 20, 100 << 20)
    assert not limits.allows_unpacked(10 << 20, (100 << 20) + 1)
    assert not limits.allows_unpacked(1 << 30, (1 << 30) + 1)
