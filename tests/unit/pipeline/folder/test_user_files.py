"""Where a command may write is found out before anything is computed."""

import errno
import tempfile
from pathlib import Path
from typing import IO

import pytest

from cluster.errors import UserError
from pipeline.folder.user_files import check_place


def test_an_existing_folder_may_lie_below_one_that_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "home" / "runs"
    out.mkdir(parents=True)
    make_file = tempfile.TemporaryFile

    def refuse_above(dir: Path) -> IO[bytes]:
        if dir == out.parent:  # whose mode says nothing to root, who runs this test somewhere
            raise PermissionError(errno.EACCES, "Permission denied")
        return make_file(dir=dir)

    monkeypatch.setattr("tempfile.TemporaryFile", refuse_above)
    check_place(out)
    check_place(out / "new" / "run")
    with pytest.raises(UserError, match=r"home/other cannot be written \(Permission denied\)"):
        check_place(out.parent / "other")


@pytest.mark.parametrize("name", ["loop", "loop/run"])
def test_a_symbolic_link_to_itself_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="cannot be written .Too many levels of symbolic links"):
        check_place(tmp_path / name)


def test_a_symbolic_link_to_a_missing_folder_is_a_place(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "later")
    check_place(tmp_path / "link")
