"""The real command on the smoke recipe, as a user starts it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_STDLIB = Path(shutil.__file__).parent
_PACKAGES = ("json", "email", "http", "logging", "unittest", "asyncio", "importlib", "xml", "html", "urllib")


def copy_corpus(folder: Path) -> Path:
    """Some packages of the standard library, each a repository."""
    for package in _PACKAGES:
        ignore = shutil.ignore_patterns("__pycache__", "test*")
        shutil.copytree(_STDLIB / package, folder / package, ignore=ignore)
    return folder


def command(verb: str, out: Path, corpus: Path, *overrides: str) -> list[str]:
    """`permcode VERB --recipe smoke ...`"""
    start = [sys.executable, "-m", "pipeline.cli", verb, "--recipe", "smoke", "--out", str(out)]
    return [*start, f"prep.source.path={corpus}", *overrides]


def run(
    arguments: list[str], expect: int = 0, look: Callable[[psutil.Process], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end; another exit code fails the test with the output. `look` is called all along."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    deadline_s = time.monotonic() + 500
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as started:
        while True:
            try:
                output, errors = started.communicate(timeout=0.3)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline_s:
                    started.kill()
                    raise
                if look is not None:
                    look(psutil.Process(started.pid))
    code = started.returncode
    assert code == expect, f"exit code {code}:\n{output}\n{errors}"
    return subprocess.CompletedProcess(arguments, code, output, errors)


def only(folder: Path, pattern: str) -> Path:
    """The one path that matches."""
    (found,) = folder.glob(pattern)
    return found
