"""Building the operators: once, whole, by one process at a time, and what happens where it cannot be done."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from pretrain.model.attention_scores import Distances, Queries
from pretrain.model.fused import attend as fused_attend
from pretrain.model.fused import operators
from pretrain.model.fused.preflight import attention_check

QUERIES = Queries(torch.zeros(1, 1, 4, 2), 1.0, None, None, None)


@pytest.fixture
def _no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("Error building extension\nninja: build stopped")

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.setattr(cpp_extension, "load", fail)
    for cached in (operators.load_operators, operators.try_load_operators, fused_attend._multiplies):
        cached.cache_clear()
    yield
    for cached in (operators.load_operators, operators.try_load_operators, fused_attend._multiplies):
        cached.cache_clear()


@pytest.mark.usefixtures("_no_compiler")
def test_without_a_compiler_the_plain_attention_is_used_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        answers = [fused_attend.fusable(QUERIES, Distances(None, None), 0.0) for _ in range(3)]
    assert answers == [False] * 3
    assert [record.message for record in caplog.records] == [
        "compiling the attention for this machine, once (half a minute)",
        "attention runs in plain PyTorch, which takes longer: Error building extension",
    ]


@pytest.mark.usefixtures("_no_compiler")
def test_a_compiler_that_does_not_run_is_reported_like_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise subprocess.CalledProcessError(1, ["c++", "--version"])

    monkeypatch.setattr(cpp_extension, "load", fail)
    assert "returned non-zero exit status 1" in str(operators.load_operators())


@pytest.mark.usefixtures("_no_compiler")
def test_the_compilers_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the command that it was called with, which is all that the first line has."""

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError(
            "Error building extension 'x': [1/2] c++ -MMD -c a.cpp\nFAILED: a.o\na.cpp:3:1: error: 'y' is missing\n"
            "a.cpp:9:1: error: more\nninja: build stopped: subcommand failed."
        )

    monkeypatch.setattr(cpp_extension, "load", fail)
    assert operators.load_operators() == "a.cpp:3:1: error: 'y' is missing"


@pytest.mark.usefixtures("_no_compiler")
def test_the_doctor_warns_where_the_operators_are_missing(tmp_path: Path) -> None:
    not_yet, failed = attention_check(build=False), attention_check(build=True)
    assert (not_yet.level, not_yet.fix) == ("warning", "permcode doctor --build")
    assert (failed.level, "Error building extension" in failed.finding) == ("warning", True)
    assert list((tmp_path / "extensions").glob("*.so")) == []


def test_the_doctor_finds_compiled_operators() -> None:
    assert operators.load_operators() is None
    check = attention_check(build=False)
    assert (check.level, str(operators.library_path().parent) in check.finding) == ("ok", True)


def test_other_instructions_sources_and_versions_of_torch_have_their_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = operators.library_path()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
    other_machine = operators.library_path()
    (tmp_path / "attention.cpp").write_text("// another version")
    monkeypatch.setattr(operators, "SOURCES", tmp_path)
    other_sources = operators.library_path()
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert len({here, other_machine, other_sources, operators.library_path()}) == 4


@pytest.mark.slow
def test_processes_that_start_at_once_build_once_whatever_a_killed_build_left(tmp_path: Path) -> None:
    program = "from pretrain.model.fused.operators import load_operators; assert load_operators() is None"
    root = str(Path(__file__).parents[4])
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path), "PYTHONPATH": root}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program], env=environment, start_new_session=True)

    killed = start()
    while not list(tmp_path.glob(".building-*/build.ninja")):
        assert killed.poll() is None
        time.sleep(0.05)
    os.killpg(killed.pid, 9)
    killed.wait()
    processes = [start(), start()]
    assert [process.wait(timeout=500) for process in processes] == [0, 0]
    assert len(list(tmp_path.glob("*.so"))) == 1
    assert list(tmp_path.glob(".building-*")) == []
