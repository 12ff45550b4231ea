"""Whose an output folder is, and that bad input leaves nothing in it."""

import errno
import fcntl
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UnfinishedError, UserError
from pipeline.folder import run_folder
from pipeline.folder.run_folder import check_owner, remove_leftovers, restore_config, working_folder

CONFIG: dict[str, Any] = {"seed": 0, "prep": {"block_tokens": 8}, "ray": {"num_cpus": None}, "tracking": {}}


def fail_in(out: Path, config: dict[str, Any], error: BaseException, wrote: str = "half") -> None:
    with working_folder(out, config):
        (out / "prep-0").mkdir()
        (out / "prep-0" / wrote).write_text("{}")
        raise error


def test_a_run_that_fails_on_its_input_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="bad corpus"):
        fail_in(tmp_path / "deep" / "out", CONFIG, UserError("bad corpus"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "made",
    [
        "checkpoints/step-00000004/COMMIT.json",
        "own/seed-0/checkpoints/step-00000010/COMMIT.json",
        "own/seed-0/result.json",
    ],
)
def test_what_was_trained_survives_an_error_in_the_first_command(tmp_path: Path, made: str) -> None:
    def fail_late(error: UserError) -> None:
        with working_folder(tmp_path / "out", CONFIG):
            path = tmp_path / "out" / "task-0" / made
            path.parent.mkdir(parents=True)
            path.write_text("{}")
            raise error

    with pytest.raises(UserError, match="losses are not finite"):
        fail_late(UserError("losses are not finite"))
    assert (tmp_path / "out" / "task-0" / made).is_file()
    assert (tmp_path / "out" / "config.yaml").is_file()


def test_what_was_begun_survives_what_is_nobodys_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="disk full"):
        fail_in(tmp_path / "out", CONFIG, UnfinishedError("disk full"))
    assert (tmp_path / "out" / "prep-0" / "half").is_file()


def test_an_empty_folder_is_empty_again_after_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="bad corpus"):
        fail_in(tmp_path, CONFIG, UserError("bad corpus"))
    assert list(tmp_path.iterdir()) == []


def test_what_others_made_beside_a_failed_run_survives(tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    def fail_beside_another() -> None:
        with working_folder(runs / "deep" / "out", CONFIG):
            (runs / "sibling").mkdir()
            raise UserError("bad corpus")

    with pytest.raises(UserError, match="bad corpus"):
        fail_beside_another()
    assert [path.name for path in runs.iterdir()] == ["sibling"]


def test_logs_of_earlier_commands_survive_bad_input(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "earlier.log").write_text("what went wrong")
    with pytest.raises(UserError, match="bad corpus"):
        fail_in(tmp_path, CONFIG, UserError("bad corpus"))
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert (tmp_path / "logs" / "earlier.log").read_text() == "what went wrong"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("exclusive_lock", OSError(errno.ENOSPC, "No space left on device")),
        ("write_bytes", OSError(errno.EIO, "Input/output error")),
        ("write_bytes", UserError("disk full")),
    ],
)
def test_a_folder_that_cannot_be_marked_is_gone_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    def fail(path: Path, *_data: bytes, **_options: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        raise error

    monkeypatch.setattr(run_folder, name, fail)
    with (
        pytest.raises(UserError, match="No space left|Input/output error|disk full"),
        working_folder(tmp_path / "deep" / "out", CONFIG),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_command_killed_while_it_marked_the_folder_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / ".config.yaml.123.tmp").write_text("se")
    (tmp_path / ".lock").touch()
    with working_folder(tmp_path, CONFIG):
        pass
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".lease.json", ".leases", ".lock", "config.yaml"]


def test_leftovers_are_files_of_atomic_writes_only(tmp_path: Path) -> None:
    for name in ("sub/.data.tar.77.tmp", ".x.json.1.tmp", "sub/kept.tmp", ".hidden", ".folder.tmp/kept"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == [".folder.tmp/kept", ".hidden", "sub/kept.tmp"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_interrupted_run_keeps_its_work(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        fail_in(tmp_path / "out", CONFIG, error)
    assert (tmp_path / "out" / "prep-0" / "half").is_file()


def test_work_of_an_earlier_command_survives_a_failure(tmp_path: Path) -> None:
    with working_folder(tmp_path, CONFIG):
        (tmp_path / "earlier").mkdir()
    with pytest.raises(UserError, match="disk full"):
        fail_in(tmp_path, CONFIG, UserError("disk full"))
    assert (tmp_path / "earlier").is_dir()


def test_a_finished_stage_survives_a_failure_of_the_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match="later"):
        fail_in(out, CONFIG, UserError("later"), wrote="STAGE.json")
    assert (out / "prep-0" / "STAGE.json").is_file()


def test_another_config_is_refused_with_the_keys_that_differ(tmp_path: Path) -> None:
    with working_folder(tmp_path, CONFIG):
        pass
    other = {**CONFIG, "seed": 1, "prep": {"block_tokens": 16}}
    with pytest.raises(UserError, match=r"prep.block_tokens \(8 there, 16 here\), seed \(0 there, 1 here\)"):
        check_owner(tmp_path, other)


def test_where_a_run_executes_may_change(tmp_path: Path) -> None:
    with working_folder(tmp_path, CONFIG):
        pass
    moved = {**CONFIG, "ray": {"num_cpus": 4}}
    with working_folder(tmp_path, moved):
        assert "num_cpus: 4" in (tmp_path / "config.yaml").read_text()


def test_a_folder_of_another_program_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with (
        pytest.raises(UserError, match=r"holds something else \(thesis.tex"),
        working_folder(tmp_path, CONFIG),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UserError, match="is a file"):
        check_owner(tmp_path / "out", CONFIG)
    with pytest.raises(UserError, match="cannot write"), working_folder(tmp_path / "out" / "below", CONFIG):
        pass


def test_a_damaged_owner_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"\xff: [")
    with pytest.raises(UserError, match="config.yaml is damaged"):
        check_owner(tmp_path, CONFIG)


def test_two_commands_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with (
            pytest.raises(UserError, match="in use by another permcode process"),
            working_folder(tmp_path, CONFIG),
        ):
            pass
    assert not (tmp_path / "config.yaml").exists()


def write_on_after_removal(out: Path) -> None:
    """A command that does not notice, and makes its folders anew as atomic writes do."""
    with working_folder(out, CONFIG):
        shutil.rmtree(out)
        (out / "prep-0123456789ab").mkdir(parents=True)
        (out / "prep-0123456789ab" / "part").write_text("x")
        threading.Event().wait(30)


def test_a_command_whose_folder_is_removed_ends_and_leaves_no_new_one(tmp_path: Path) -> None:
    start_s = time.monotonic()
    with pytest.raises(
        UnfinishedError, match=r"the output folder .*out was removed or renamed while this command"
    ):
        write_on_after_removal(tmp_path / "out")
    assert time.monotonic() - start_s < 25
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_in_the_place_of_a_removed_one_stays(tmp_path: Path) -> None:
    def replace(out: Path) -> None:
        with working_folder(out, CONFIG):
            out.rename(tmp_path / "renamed")
            out.mkdir()
            (out / "notes.txt").write_text("mine")

    with pytest.raises(UnfinishedError, match="rename it back"):
        replace(tmp_path / "out")
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["notes.txt"]
    assert (tmp_path / "renamed" / "config.yaml").is_file()


def test_config_is_not_written_again_by_a_command_with_other_settings(tmp_path: Path) -> None:
    for name in ("prep-0123456789ab", "pretrain-0123456789ab", "report-0123456789ab"):
        (tmp_path / name).mkdir()
    own = {"prep-0123456789ab", "pretrain-ba9876543210"}
    with pytest.raises(
        UserError, match=r"has lost its config.yaml, and pretrain-0123456789ab was made under other"
    ):
        restore_config(tmp_path, CONFIG, lambda: own)
    with pytest.raises(
        UserError, match=r"has lost its config.yaml: the command that made it, with the same recipe"
    ):
        check_owner(tmp_path, CONFIG)
    assert not (tmp_path / "config.yaml").exists()
    restore_config(tmp_path, CONFIG, lambda: {*own, "pretrain-0123456789ab"})
    check_owner(tmp_path, CONFIG)


def test_a_removed_lock_costs_nothing_of_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with working_folder(out, {"seed": 1}):
        work = out / "pretrain-0123456789ab" / "checkpoints"
        work.mkdir(parents=True)
        (out / ".lock").unlink()
        time.sleep(2.5)  # the watch looks every second
    assert work.is_dir()
    assert (out / "config.yaml").is_file()
