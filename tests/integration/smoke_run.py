"""The real command on the smoke recipe, as a user starts it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def run(arguments: list[str], expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run to the end; another exit code fails the test with the output."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == expect, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def only(folder: Path, pattern: str) -> Path:
    """The one path that matches."""
    (found,) = folder.glob(pattern)
    return found
