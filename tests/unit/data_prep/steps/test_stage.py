"""The complete stage on a small corpus."""

import errno
import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.errors import UserError
from cluster.reporter import Reporter
from cluster.storage import sha256_file, write_bytes
from data_prep.config import PrepConfig
from data_prep.filters.config import FiltersConfig
from data_prep.finished.forget_requests import ForgetRequest
from data_prep.finished.ledger import read_ledger
from data_prep.finished.prepared import open_prepared
from data_prep.forget import plan_forgetting
from data_prep.sources.config import DirectoryConfig, SourceConfig
from data_prep.sources.plan import plan_units
from data_prep.sources.units import WorkUnit
from data_prep.stage import run_prep

Prepared = tuple[Path, dict[str, Any]]
DROPPED = {
    "package0:bad/small.py": "file_size",
    "package0:bad/undecodable.py": "decodable",
    "package0:bad/long_line.py": "line_length",
    "package0:bad/long_lines.py": "mean_line_length",
    "package0:bad/symbols.py": "alphanumeric_share",
    "package0:bad/python2.py": "parses",
    "package7:zz_copy.py": "exact_duplicate",
}


def ledger_rows(folder: Path) -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in read_ledger(folder / "ledger.parquet").to_pylist()]


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def test_every_file_has_a_decision(prepared: Prepared) -> None:
    folder, summary = prepared
    rows = ledger_rows(folder)
    assert {f"{r.repository}:{r.path}": r.rule for r in rows if r.decision == "dropped"} == DROPPED
    copy = next(row for row in rows if row.rule == "exact_duplicate")
    assert copy.duplicate_of == "directory:package0:src/module0.py"
    assert len(rows) == summary["num_files_listed"] == 48 + len(DROPPED)
    assert summary["num_files_kept"] == 48
    assert summary["dropped_by_rule"] == dict(Counter(DROPPED.values()))
    kept = [row for row in rows if row.decision == "kept"]
    assert all(row.num_tokens and row.sha256 and row.split for row in kept)
    assert all(row.split is None and row.num_tokens is None for row in rows if row.decision == "dropped")


def test_summary_adds_up(prepared: Prepared) -> None:
    folder, summary = prepared
    rows = ledger_rows(folder)
    for split, counts in summary["splits"].items():
        kept = [row for row in rows if row.split == split]
        assert counts["num_docs"] == len(kept)
        assert counts["num_tokens"] == sum(row.num_tokens or 0 for row in kept)
        assert counts["num_bytes"] == sum(row.num_text_bytes or 0 for row in kept)
    assert sum(r["num_bytes"] for r in summary["repositories"]) == summary["num_bytes_kept"]
    assert summary["languages"] == {
        "Python": {
            "num_files": summary["num_files_kept"],
            "num_bytes": summary["num_bytes_kept"],
            "num_tokens": sum(row.num_tokens or 0 for row in rows),
        }
    }
    assert summary["num_bytes_listed"] == sum(row.num_bytes for row in rows)
    assert summary["splits"]["train"]["num_shards"] > 1
    assert summary["splits"]["train"]["num_blocks"] > summary["splits"]["train"]["num_shards"]
    assert 1 < summary["bytes_per_token"] < 10


def test_splits_share_no_repository(prepared: Prepared) -> None:
    folder, _ = prepared
    rows = ledger_rows(folder)
    pairs = {(row.repository, row.split) for row in rows if row.split is not None}
    assert len(pairs) == len({repository for repository, _ in pairs}) == 8
    assert {split for _, split in pairs} == {"train", "validation", "test"}


def test_twice_gives_the_same_bytes_and_leaves_no_work(
    prepared: Prepared, config: PrepConfig, tmp_path: Path
) -> None:
    folder, summary = prepared
    again = tmp_path / "again"
    assert run_prep(config, 0, again, Reporter()) == summary
    assert digests(again) == digests(folder)
    assert {path.name for path in again.iterdir()} == {
        "manifest.json",
        "tokenizer.json",
        "ledger.parquet",
        "shards",
        ".input-signature",
    }


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("stop_after", [1, 3, 5, 6, 8, 12, 14, 16, 18, 19])
def test_stopped_at_any_write_and_repeated_gives_the_same_bytes(
    config: PrepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    complete = tmp_path / "complete"
    run_prep(config, 0, complete, Reporter())
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        _fail_at_rename(patch, stop_after, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_prep(config, 0, stopped, Reporter())
    assert not (stopped / "manifest.json").exists()
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*.tar")}
    run_prep(config, 0, stopped, Reporter())
    assert digests(stopped) == digests(complete)
    # Only the tar whose note was being written can have been made again.
    assert sum(path.stat().st_mtime_ns != time_ns for path, time_ns in before.items()) <= 1


@pytest.mark.usefixtures("in_process")
def test_partial_files_of_a_killed_run_are_removed(
    prepared: Prepared, config: PrepConfig, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    (killed / "shards").mkdir(parents=True)
    for name in (".manifest.json.12.tmp", "shards/.train-00000.tar.12.tmp", "shards/train-00099.tar"):
        (killed / name).write_bytes(b"half")
    run_prep(config, 0, killed, Reporter())
    assert digests(killed) == digests(prepared[0])


def _fail_at_rename(patch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    replace, calls = os.replace, iter(range(number))

    def failing(source: Path, target: Path) -> None:
        if next(calls, None) is None:
            raise error
        replace(source, target)

    patch.setattr("cluster.storage.os.replace", failing)


def test_a_finished_folder_is_not_made_again(
    prepared: Prepared, config: PrepConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, summary = prepared
    _fail_at_rename(monkeypatch, 0, AssertionError("nothing may be written"))
    assert run_prep(config, 0, folder, Reporter()) == summary


def test_a_changed_corpus_is_prepared_again(prepared: Prepared, config: PrepConfig, corpus: Path) -> None:
    folder, summary = prepared
    shutil.rmtree(corpus / "package3")
    changed = run_prep(config, 0, folder, Reporter())
    assert changed["num_files_kept"] == summary["num_files_kept"] - 6
    tars = {path.name.split(".")[0] for path in (folder / "shards").iterdir()}
    manifest = open_prepared(folder).manifest
    assert tars == {shard.name for shards in manifest.splits.values() for shard in shards}


def test_an_edit_that_keeps_the_size_is_prepared_again(
    prepared: Prepared, config: PrepConfig, corpus: Path
) -> None:
    folder, _ = prepared
    before = digests(folder)
    path = corpus / "package3" / "src" / "module1.py"
    path.write_text(path.read_text(encoding="utf-8").replace("value", "eulav"), encoding="utf-8")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    run_prep(config, 0, folder, Reporter())
    assert digests(folder)["ledger.parquet"] != before["ledger.parquet"]


@pytest.mark.usefixtures("in_process")
def test_corpus_path_relative_to_the_drivers_folder(
    config: PrepConfig, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place = run_prep(config, 0, tmp_path / "absolute", Reporter())
    relative = config.model_copy(update={"source": DirectoryConfig(path=corpus.name)})
    monkeypatch.chdir(corpus.parent)
    monkeypatch.setattr("data_prep.steps.inputs.plan_units", _planned_then_elsewhere)
    assert run_prep(relative, 0, tmp_path / "relative", Reporter()) == in_place


def _planned_then_elsewhere(config: SourceConfig) -> list[WorkUnit]:
    """Run tasks in this process, in another working directory, as on a worker."""
    units = plan_units(config)
    os.chdir("/")
    return units


def test_concurrent_changes_do_not_stop_the_removal_of_work(
    config: PrepConfig, in_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that outlives its killed driver removes its own file and creates `work` again."""
    folder = tmp_path / "prep"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / ".train-00000.tar.12.tmp").write_bytes(b"half")
    unlink, rename = Path.unlink, Path.rename
    late = iter([folder / "work" / "late.arrow"])

    def unlink_second(path: Path, missing_ok: bool = False) -> None:
        if path.name == ".train-00000.tar.12.tmp":
            unlink(path)
        unlink(path, missing_ok)

    def rename_and_late(path: Path, target: Path) -> Path:
        moved = rename(path, target)
        for output in late:
            write_bytes(output, b"late")
        return moved

    monkeypatch.setattr(Path, "unlink", unlink_second)
    monkeypatch.setattr(Path, "rename", rename_and_late)
    run_prep(config, 0, folder, Reporter())
    assert not [path.name for path in folder.iterdir() if path.name.lstrip(".").startswith("work")]
    assert not list(folder.rglob("*.tmp"))


def test_tokenizer_is_trained_on_train_texts_only(
    prepared: Prepared, config: PrepConfig, corpus: Path, tmp_path: Path
) -> None:
    folder, summary = prepared
    held_out = [r["name"] for r in summary["repositories"] if r["split"] != "train"]
    for name in held_out:
        for path in (corpus / name).rglob("module*.py"):
            # As long as before, so that the split stays the same.
            path.write_text(
                path.read_text(encoding="utf-8").replace("function", "zzqzzqzz"), encoding="utf-8"
            )
    other = tmp_path / "other"
    run_prep(config, 0, other, Reporter())
    assert sha256_file(other / "tokenizer.json") == sha256_file(folder / "tokenizer.json")
    assert sha256_file(other / "manifest.json") != sha256_file(folder / "manifest.json")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("number", [0, 4, 6, 13, 17])
def test_full_disk(config: PrepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    folder = tmp_path / "prep"
    _fail_at_rename(monkeypatch, number, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(UserError, match="disk full while writing"):
        run_prep(config, 0, folder, Reporter())
    assert not (folder / "manifest.json").exists()
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.usefixtures("in_process")
def test_the_budget_is_in_the_ledger(config: PrepConfig, corpus: Path, tmp_path: Path) -> None:
    sizes = [sum(f.stat().st_size for f in d.rglob("*.py")) for d in corpus.iterdir()]
    source = DirectoryConfig(path=str(corpus), max_total_bytes=max(sizes) * 4)
    summary = run_prep(config.model_copy(update={"source": source}), 0, tmp_path / "prep", Reporter())
    assert len(summary["repositories"]) in (4, 5)
    budget = [row for row in ledger_rows(tmp_path / "prep") if row.rule == "budget"]
    assert len(budget) == summary["dropped_by_rule"]["budget"]
    assert all(row.sha256 is None for row in budget)
    assert len(budget) + summary["num_files_kept"] <= summary["num_files_listed"]


@pytest.mark.usefixtures("in_process")
def test_the_error_without_usable_files_names_the_counts(config: PrepConfig, tmp_path: Path) -> None:
    strict = config.model_copy(update={"filters": FiltersConfig(min_file_bytes=100_000)})
    with pytest.raises(UserError, match=r"all 55 files of the corpus were dropped \(file_size 55\)"):
        run_prep(strict, 0, tmp_path / "prep", Reporter())
    small = config.model_copy(
        update={"source": DirectoryConfig(path=str(tmp_path / "corpus"), max_total_bytes=10)}
    )
    with pytest.raises(UserError, match=r"dropped \(budget 55\)"):
        run_prep(small, 0, tmp_path / "prep", Reporter())


def test_blocks_larger_than_shards_are_refused() -> None:
    with pytest.raises(ValidationError, match="block_tokens=10 must not exceed shard_tokens=5"):
        PrepConfig(block_tokens=10, shard_tokens=5)


@pytest.mark.usefixtures("in_process")
def test_a_tar_that_another_corpus_has_replaced_is_rewritten(
    config: PrepConfig, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop corpus A before its end, then prepare B, then A to its end, all in one folder."""
    complete, folder = tmp_path / "complete", tmp_path / "prep"
    run_prep(config, 0, complete, Reporter())
    only_some = DirectoryConfig(path=str(corpus), exclude=("package6",))
    other = config.model_copy(update={"source": only_some})
    for stopped in (config, other):
        with monkeypatch.context() as patch:
            patch.setattr("data_prep.stage.finish", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                run_prep(stopped, 0, folder, Reporter())
    run_prep(config, 0, folder, Reporter())
    assert digests(folder) == digests(complete)


@pytest.mark.usefixtures("in_process")
def test_removed_tars_are_written_again(
    config: PrepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, folder = tmp_path / "complete", tmp_path / "prep"
    run_prep(config, 0, complete, Reporter())
    with monkeypatch.context() as patch:
        patch.setattr("data_prep.stage.finish", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_prep(config, 0, folder, Reporter())
    shutil.rmtree(folder / "shards")
    run_prep(config, 0, folder, Reporter())
    assert digests(folder) == digests(complete)


def _interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_forgetting_a_dropped_copy_names_the_kept_text(prepared: Prepared) -> None:
    folder, _ = prepared
    plan = plan_forgetting(folder, (ForgetRequest(path="*zz_copy.py"),))
    assert (plan.num_rows, plan.num_documents) == (1, 0)
    assert plan.copies == ("directory:package0:src/module0.py",)
    both = (ForgetRequest(repository="package0"), ForgetRequest(path="*zz_copy.py"))
    assert plan_forgetting(folder, both).copies == ()
