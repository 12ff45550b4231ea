"""A small corpus for training runs."""

from pathlib import Path

import pytest

from tests.example_corpus import stdlib_packages, write_corpus


@pytest.fixture(scope="session")
def prep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = {"train": ["string", "heapq", "csv"], "validation": ["fnmatch"], "test": ["bisect"]}
    folder = tmp_path_factory.mktemp("prep")
    write_corpus(folder, {split: stdlib_packages(modules) for split, modules in splits.items()})
    return folder
