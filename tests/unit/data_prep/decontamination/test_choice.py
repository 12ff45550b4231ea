"""Optional sets: which of them exist is determined when prep begins in a folder."""

import errno
import os
from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.decontamination.choice import (
    ChosenSets,
    choose_sets,
    record_choice,
    required_sets,
    sets_in_summary,
)
from data_prep.decontamination.config import DecontaminationConfig, EvaluationSetConfig
from data_prep.decontamination.index import build_index

TEXT = "one two three four five six seven eight nine ten\n"


@pytest.fixture
def config(tmp_path: Path) -> DecontaminationConfig:
    """Return a config with a required set and two optional sets, of which one exists."""
    for name in ("must", "there"):
        (tmp_path / f"{name}.txt").write_text(f"{name} {TEXT}")
    sets = {
        name: EvaluationSetConfig(path=str(tmp_path / f"{name}.txt"), required=name == "must")
        for name in ("must", "there", "absent")
    }
    return DecontaminationConfig(sets=sets)


def begin(config: DecontaminationConfig, folder: Path) -> ChosenSets:
    chosen = choose_sets(config, folder)
    record_choice(config, chosen, folder)
    return chosen


def test_an_optional_set_may_be_missing_but_not_broken(config: DecontaminationConfig, tmp_path: Path) -> None:
    chosen = choose_sets(config, tmp_path / "prep")
    assert list(chosen.config.sets) == ["must", "there"]
    assert chosen.lines == (
        f"continuing without evaluation set absent: no file at {tmp_path}/absent.txt: correct its path",
    )
    (tmp_path / "absent.txt").write_bytes(b"\xff")
    with pytest.raises(UserError, match="cannot be read"):
        choose_sets(config, tmp_path / "prep")
    (tmp_path / "absent.txt").write_text("short\n")
    with pytest.raises(UserError, match="no text has 8 words"):
        choose_sets(config, tmp_path / "prep")
    (tmp_path / "must.txt").unlink()
    with pytest.raises(UserError, match="no file at"):
        build_index(required_sets(config))


def test_a_set_added_later_is_not_used_and_a_missing_one_is_an_error(
    config: DecontaminationConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "prep"
    first = begin(config, folder)
    assert begin(config, folder) == first
    (tmp_path / "absent.txt").write_text(TEXT)
    later = begin(config, folder)
    assert (later.config, later.digests) == (first.config, first.digests)
    assert later.lines == (
        f"continuing without evaluation set absent: it did not exist when prep began in {folder}; remove that folder "
        "to start again with it",
    )
    there = tmp_path / "there.txt"
    there.write_text(f"changed {TEXT}")
    with pytest.raises(
        UserError, match=r"^evaluation set there \(.*there\.txt\) has changed since prep began"
    ):
        begin(config, folder)
    there.unlink()
    with pytest.raises(
        UserError, match=r"set there .* is missing, but existed when prep began in .*prep: restore"
    ):
        begin(config, folder)
    assert list(choose_sets(config, tmp_path / "other").config.sets) == ["must", "absent"]


def test_a_changed_config_chooses_again(config: DecontaminationConfig, tmp_path: Path) -> None:
    begin(config, tmp_path / "prep")
    (tmp_path / "absent.txt").write_text(TEXT)
    sets = {name: one for name, one in config.sets.items() if name != "there"}
    chosen = begin(config.model_copy(update={"sets": sets}), tmp_path / "prep")
    assert list(chosen.config.sets) == ["must", "absent"]


def test_the_summary_names_the_sets_and_nothing_is_written_where_all_are_required(
    config: DecontaminationConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "prep"
    folder.mkdir()
    required = required_sets(config)
    begin(required, folder)
    assert list(folder.iterdir()) == []
    assert sets_in_summary(required, folder) == {"evaluation_sets": {"kept_out": ["must"], "missing": []}}
    assert sets_in_summary(DecontaminationConfig(), folder) == {}
    begin(config, folder)
    expected = {"evaluation_sets": {"kept_out": ["must", "there"], "missing": ["absent"]}}
    assert sets_in_summary(config, folder) == expected
    (tmp_path / "there.txt").unlink()
    assert sets_in_summary(config, folder) == expected


@pytest.mark.parametrize(
    "pattern", ["set.txt", "*.txt", "deep/set.txt", "../*/set.txt", "../**/s*.txt", "../**"]
)
def test_a_set_in_an_unreadable_folder_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    sets = {"mine": EvaluationSetConfig(path=str(tmp_path / "closed" / pattern), required=False)}
    config = DecontaminationConfig(sets=sets)
    (tmp_path / "open").mkdir()
    if pattern != "../**":
        assert choose_sets(config, tmp_path / "prep").digests == {"mine": None}

    def refusing(original):  # type: ignore[no-untyped-def]
        """Refuse access explicitly, because file modes do not restrict root."""

        def look(path=".", *arguments, **options):  # type: ignore[no-untyped-def]
            name = os.path.normpath(os.fspath(path)) if not isinstance(path, int) else ""
            if name.startswith(f"{closed}/") or (name == str(closed) and original is scandir):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return original(path, *arguments, **options)

        return look

    scandir = os.scandir
    for name in ("scandir", "stat", "lstat"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    with pytest.raises(UserError, match=r"set mine: .* cannot be looked up \(Permission denied: .*closed"):
        choose_sets(config, tmp_path / "prep")
