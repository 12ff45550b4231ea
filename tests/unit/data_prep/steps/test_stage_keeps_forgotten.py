"""Forgotten files stay out however prep runs again."""

import shutil
from pathlib import Path
from typing import Any

from cluster.reporter import Reporter
from data_prep.config import PrepConfig
from data_prep.finished.forget_requests import ForgetRequest, record_request
from data_prep.finished.prepared import open_prepared
from data_prep.finished.verification import verify_prepared
from data_prep.stage import run_prep

REQUEST = ForgetRequest(repository="package0")
Prepared = tuple[Path, dict[str, Any]]


def decisions(folder: Path) -> dict[tuple[str, str], tuple[str, str | None]]:
    rows = open_prepared(folder).ledger().to_pylist()
    return {(row["repository"], row["path"]): (row["decision"], row["rule"]) for row in rows}


def stored_repositories(folder: Path) -> set[str]:
    corpus = open_prepared(folder)
    blocks = (corpus.read_block(entry) for split in corpus.manifest.splits for entry in corpus.blocks(split))
    return {meta.repository for block in blocks for meta in block.docs}


def test_a_finished_folder_is_rewritten_and_not_prepared_again(
    config: PrepConfig, prepared: Prepared
) -> None:
    folder, before = prepared
    tokenizer = (folder / "tokenizer.json").stat()
    after = run_prep(config, 0, folder, Reporter(), [REQUEST])
    assert (folder / "tokenizer.json").stat() == tokenizer
    assert open_prepared(folder).manifest.revision == 2
    assert "package0" in {entry["name"] for entry in before["repositories"]}
    assert "package0" not in {entry["name"] for entry in after["repositories"]}
    assert after["dropped_by_rule"]["forgotten"] == before["num_files_kept"] - after["num_files_kept"] > 0
    verify_prepared(folder)
    # Without the request it stays as it is.
    assert run_prep(config, 0, folder, Reporter()) == after
    assert "package0" not in stored_repositories(folder)


def test_a_new_preparation_drops_them_and_the_rule_is_in_the_ledger(
    config: PrepConfig, prepared: Prepared, tmp_path: Path
) -> None:
    run_prep(config, 0, tmp_path / "again", Reporter(), [REQUEST])
    before, after = decisions(prepared[0]), decisions(tmp_path / "again")
    assert before.keys() == after.keys()
    for (repository, path), (decision, rule) in before.items():
        if repository == "package0" and rule in (None, "exact_duplicate"):
            assert after[repository, path] == ("dropped", "forgotten")
        elif rule != "exact_duplicate":
            assert after[repository, path] == (decision, rule)
    assert "package0" not in stored_repositories(tmp_path / "again")


def test_a_request_recorded_in_a_folder_applies_to_later_preparations(
    config: PrepConfig, prepared: Prepared
) -> None:
    folder, _ = prepared
    record_request(folder, REQUEST)
    for name in ("shards", "manifest.json"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run_prep(config, 0, folder, Reporter())
    assert "package0" not in stored_repositories(folder)


def test_a_changed_config_leaves_no_ledger_of_an_older_revision(
    config: PrepConfig, prepared: Prepared
) -> None:
    folder, _ = prepared
    run_prep(config, 0, folder, Reporter(), [REQUEST])
    assert (folder / "ledger-r2.parquet").is_file()
    changed = config.model_copy(update={"shard_tokens": config.shard_tokens + 1000})
    run_prep(changed, 0, folder, Reporter(), [REQUEST])
    assert [path.name for path in folder.glob("ledger*")] == ["ledger.parquet"]
    verify_prepared(folder)
