"""A small corpus in two languages with many documents, and a model of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from pretrain.config import ValidationConfig
from pretrain.evaluation.evaluator import Evaluator
from pretrain.model.transformer import TwoStreamTransformer
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

LANES, SEGMENT, PER_PASS = 3, 32, 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """Validation: a package cut into pieces of Python and Markdown."""
    text = stdlib_packages(["heapq"])["heapq"]["heapq.py"]
    pieces = [text[start : start + 150] for start in range(0, 1650, 150)]
    files = {f"{number}.{'md' if number % 3 == 0 else 'py'}": piece for number, piece in enumerate(pieces)}
    splits = {
        "train": stdlib_packages(["string", "fnmatch"]),
        "validation": {"pieces": files},
        "test": stdlib_packages(["bisect"]),
    }
    folder: Path = tmp_path_factory.mktemp("prep")
    return write_corpus(folder, splits)


@pytest.fixture
def model(corpus: PreparedCorpus) -> TwoStreamTransformer:
    return tiny_model(corpus.tokenizer.vocab_size, dropout=0.1).double()


def evaluator_of(
    corpus: PreparedCorpus,
    per_pass: int = PER_PASS,
    tick: Callable[[], None] = lambda: None,
    **settings: object,
) -> Evaluator:
    config = ValidationConfig.model_validate({"during_order_tokens": 100, **settings})
    return Evaluator(config, corpus, LANES, SEGMENT, per_pass, torch.device("cpu"), tick)
