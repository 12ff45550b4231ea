"""The command line: exit codes, one line for bad input, nothing left behind, nothing heavy at its start."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli import app
from pipeline.run import run as run_module

HEAVY = ("torch", "ray", "mlflow", "deepspeed", "sklearn", "matplotlib", "pandas", "pyarrow")


def permcode(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--recipe", "dmeo"), "unknown recipe 'dmeo': did you mean 'demo'"),
        (("--recipe", "smoke", "prep.source.path=/no/such"), "/no/such"),
        (("--recipe", "smoke", "prep.block_token=1"), "did you mean prep.block_tokens?"),
        (("--recipe", "smoke", "seed=x"), "seed = 'x'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "prep", "pretrain", "finetune", "report"])
def test_bad_input_is_one_line_and_leaves_nothing(
    command: str, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = permcode(command, "--out", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("permcode: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_config_and_graph_and_writes_nothing(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = permcode(
        "run", "--recipe", "smoke", "--out", str(out), f"prep.source.path={corpus}", "--dry-run"
    )
    assert result.exit_code == 0, result.stderr
    assert "block_tokens: 16384" in result.stdout
    for stage in ("prep", "pretrain", "completion", "search", "report"):
        assert f"{out}/{stage}-" in result.stdout
    assert "reads the corpus; no output yet" in result.stdout
    assert not out.exists()


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "permcode: interrupted: the same command continues\n"),
        (SystemExit(1), 130, "permcode: interrupted: the same command continues\n"),
        (
            ZeroDivisionError("by nought"),
            1,
            "permcode: failed: ZeroDivisionError: by nought (the traceback is in ",
        ),
    ],
)
def test_other_ends_of_a_run_have_their_exit_codes(
    failure: BaseException, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise failure

    monkeypatch.setattr(run_module, "run_pipeline", fail)
    result = permcode("run", "--recipe", "smoke", "--out", str(tmp_path))
    assert result.exit_code == code
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_the_log_of_a_failure_holds_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(run_module, "run_pipeline", fail)
    permcode("run", "--recipe", "smoke", "--out", str(tmp_path))
    (log,) = (tmp_path / "logs").iterdir()
    assert "in fail\n" in log.read_text()


def test_every_command_explains_itself() -> None:
    text = permcode("--help").stdout
    for command in ("run", "prep", "pretrain", "finetune", "report", "submit", "plan", "doctor"):
        assert f"\n  {command} " in text
        assert "Usage" in permcode(command, "--help").stdout
    assert "permcode run --recipe demo --out runs/demo" in text


def heavy_modules(*arguments: str) -> list[str]:
    """Those that a command imports."""
    program = (
        "import sys\n"
        "from pipeline.cli import app\n"
        "app(standalone_mode=False)\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    return done.stdout.split("\n")[-2].split()


def test_help_imports_nothing_heavy() -> None:
    assert heavy_modules("--help") == []


def test_a_command_that_runs_nothing_imports_no_more_than_a_recipe_s_tasks_need(
    corpus: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    looks = ("run", "--recipe", "smoke", "--out", out, f"prep.source.path={corpus}", "--dry-run")
    # The kinds of systems a task may have stand beside their networks.
    assert set(heavy_modules(*looks)) <= {"torch", "pyarrow"}
