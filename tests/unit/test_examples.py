"""The examples that property tests draw: the same in every `make test`, random and more in `make test-explore`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROPERTY = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=50)
@given(st.lists(st.one_of(st.integers(), st.text())))
def test_draws(values):
    with open("draws", "a") as file:
        print(ascii(values), file=file)

def test_no_property():
    assert open("draws").close() is None
"""


def draws(folder: Path, *options: str) -> list[str]:
    """What a property of 50 examples draws in a process of its own, under this project's conftest."""
    folder.mkdir()
    (folder / "test_draws.py").write_text(_PROPERTY)
    (folder / "constants.py").write_text(f"SEEN = {[7919 * number for number in range(1, 500)]}")
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{root}:{folder}"},
        check=True,
    )
    return (folder / "draws").read_text().splitlines()


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return draws(tmp_path_factory.mktemp("seeded") / "alone")


def test_they_are_the_same_whatever_else_the_process_has_loaded(seeded: list[str], tmp_path: Path) -> None:
    assert len(seeded) == 50
    assert draws(tmp_path / "not alone", "-p", "constants") == seeded


def test_exploring_draws_others_and_ten_times_as_many(seeded: list[str], tmp_path: Path) -> None:
    explored = draws(tmp_path / "explore", "--hypothesis-profile", "explore")
    assert len(explored) == 500
    assert explored[:50] != seeded
