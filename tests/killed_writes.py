"""End a call at any of its renames and removals of files, as a kill would."""

import os
from pathlib import Path

import pytest


class Killed(BaseException):
    """Not an Exception: nothing may handle it."""


def kill_at(patched: pytest.MonkeyPatch, number: int) -> None:
    """Let `number` renames and removals of files happen, then end at the next."""
    calls = 0
    replace, unlink = os.replace, Path.unlink

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls > number:
            raise Killed

    def counted_replace(source: Path, target: Path) -> None:
        count()
        replace(source, target)

    def counted_unlink(path: Path, missing_ok: bool = False) -> None:
        if not path.name.endswith(".tmp"):
            count()
        unlink(path, missing_ok=missing_ok)

    patched.setattr(os, "replace", counted_replace)
    patched.setattr(Path, "unlink", counted_unlink)
