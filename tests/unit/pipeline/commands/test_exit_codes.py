"""Every row of the table of exit codes in docs/cluster.md."""

from pathlib import Path
from typing import get_args

import pytest
import typer

from cluster.errors import FailureKind, RetryableError, UserError
from pipeline.commands.exit_codes import exit_codes

PAGE = (Path(__file__).parents[4] / "docs/cluster.md").read_text()
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


def ended(error: BaseException, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the last line of a command that ends with `error`."""
    with pytest.raises(typer.Exit) as end, exit_codes(out):
        raise error
    return end.value.exit_code, capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_pass_names_its_kind(
    kind: FailureKind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RetryableError("node n7 was lost: run the same command again", kind)
    line = f"permcode: failed for now ({kind}): node n7 was lost: run the same command again"
    assert ended(error, tmp_path, capsys) == (75, line)
    assert f"| 75 | `failed for now ({kind}): ...` |" in PAGE


def test_the_table_has_no_kind_that_does_not_exist() -> None:
    assert PAGE.count("| 75 | `failed for now (") == len(KINDS)


@pytest.mark.parametrize(
    ("error", "code", "begin"),
    [
        (UserError("lanes must divide"), 2, "error: "),
        (ZeroDivisionError("division by zero"), 1, "failed: ZeroDivisionError: "),
        (KeyboardInterrupt(), 130, "interrupted: "),
    ],
)
def test_the_other_rows(
    error: BaseException, code: int, begin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, line = ended(error, tmp_path, capsys)
    assert (found, line.startswith(f"permcode: {begin}")) == (code, True)
    assert f"| {code} | `{begin.replace('ZeroDivisionError', 'TYPE')}" in PAGE
