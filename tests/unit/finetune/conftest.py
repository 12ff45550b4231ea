"""A corpus of standard library modules and a tiny model of its vocabulary."""

from pathlib import Path

import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

_MODULES = {
    "train": ["string"],
    "validation": ["argparse", "textwrap", "calendar", "csv"],
    "test": ["statistics", "tarfile", "heapq", "fnmatch"],
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Tiny matrices: threads would spend their time waiting for each other.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("prep")
    return write_corpus(folder, {split: stdlib_packages(modules) for split, modules in _MODULES.items()})


@pytest.fixture
def model(corpus: PreparedCorpus) -> TwoStreamTransformer:
    return tiny_model(corpus.tokenizer.vocab_size)


@pytest.fixture(scope="session")
def pretrain_folder(corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrain")
    model = tiny_model(corpus.tokenizer.vocab_size, dropout=0.1)
    save_model(model, folder / "model", corpus.folder / "tokenizer.json")
    return folder
