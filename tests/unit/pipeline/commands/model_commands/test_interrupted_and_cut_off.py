"""Ctrl-C, a terminal, a reader that goes away."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pretrain.inference.language_model import PermutationLM
from tests.unit.pipeline.commands.model_commands.command import CODE, permcode


def test_an_interruption_is_quiet(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PermutationLM, "complete", interrupt)
    result = permcode("complete", model, "x")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def started(stdout: int, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[5],
    )


def test_on_a_terminal_text_comes_as_it_is_written_until_ctrl_c(model: Path) -> None:
    ours, theirs = pty.openpty()
    process = started(theirs, "complete", model, "def", "--max-tokens", 1_000_000)
    seen = b""
    while seen.count(b"\n") < 3:
        seen += os.read(ours, 1000)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    os.close(theirs)
    with contextlib.suppress(OSError):  # Linux says EIO at the end of a terminal
        while more := os.read(ours, 1000):
            seen += more
    os.close(ours)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (130, b"")
    text = seen.decode().replace("\r\n", "\n")
    assert text.replace("\n", "").replace("\t", "").isprintable()
    assert text.endswith("\n")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_bytes(CODE.encode() * 100)
    process = started(subprocess.PIPE, "score", model, path, "--per-token")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()
