"""On a malicious corpus the run succeeds, and every file has its row."""

import json
from collections import Counter
from pathlib import Path

import pytest

from cluster.reporter import Reporter
from data_prep.config import PrepConfig, SplitConfig
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.finished.ledger import read_ledger
from data_prep.sources.config import DirectoryConfig, JsonlConfig, MixtureConfig
from data_prep.stage import run_prep
from data_prep.tokenizers.config import TokenizerConfig
from tests.hostile_corpus import write_hostile_tree

GOOD_LINES = 40


@pytest.fixture
def config(tmp_path: Path) -> PrepConfig:
    return PrepConfig(
        source=DirectoryConfig(path=str(tmp_path / "crawl")),
        tokenizer=TokenizerConfig(vocab_size=460, sample_bytes=20_000),
        split=SplitConfig(by="file"),
        near_duplicates=NearDuplicatesConfig(enabled=False),
    )


@pytest.mark.usefixtures("in_process")
def test_every_malicious_file_is_in_the_ledger_with_its_reason(config: PrepConfig, tmp_path: Path) -> None:
    expected = write_hostile_tree(tmp_path / "crawl")
    before = sorted(path.name for path in tmp_path.iterdir())
    run_prep(config, 0, tmp_path / "prep", Reporter())
    rows = read_ledger(tmp_path / "prep" / "ledger.parquet").to_pylist()
    assert Counter((row["repository"], row["path"]) for row in rows) == Counter(
        (file.repository, file.path) for file in expected
    )
    rule_of = {(row["repository"], row["path"]): row["rule"] for row in rows}
    for file in expected:
        if file.rule is not None:
            assert rule_of[file.repository, file.path] == file.rule, file
    assert all((row["decision"] == "kept") == (row["rule"] is None) for row in rows)
    assert rule_of["texts", "nul.py"] == "binary"
    assert rule_of["texts", "empty.py"] == "file_size"
    flags = {row["path"]: row["flags"] for row in rows}
    assert "bidi" in (flags["bidirectional.py"] or "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "prep"])


@pytest.mark.usefixtures("in_process")
def test_a_broken_line_affects_one_row(config: PrepConfig, tmp_path: Path) -> None:
    write_hostile_tree(tmp_path / "crawl")
    text = "\n".join(f"name_{number} = {number}" for number in range(9))
    lines = [json.dumps({"content": f"value_{i} = compute({i})\n{text}"}) for i in range(GOOD_LINES)]
    lines[17] = '{"content": "cut off'
    lines[23] = '{"content": 5}'
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    parts = {
        "crawl": config.source,
        "table": JsonlConfig(urls=(str(tmp_path / "data.jsonl"),), repository="table", weight=3.0),
    }
    mixed = config.model_copy(update={"source": MixtureConfig.model_validate({"parts": parts})})
    summary = run_prep(mixed, 0, tmp_path / "prep", Reporter())
    rows = read_ledger(tmp_path / "prep" / "ledger.parquet").to_pylist()
    table = [row for row in rows if row["source"] == "table"]
    assert len(table) == GOOD_LINES
    assert Counter(row["rule"] for row in table)["broken_record"] == 2
    assert summary["sources"]["table"]["weight"] == 3.0
    assert (
        summary["sources"]["table"]["num_docs"] + summary["sources"]["crawl"]["num_docs"]
        == summary["num_files_kept"]
    )
