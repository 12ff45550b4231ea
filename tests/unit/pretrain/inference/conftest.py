"""What tests of a model in use share: one thread, a small model, and the corpus its tokenizer is from."""

import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from pretrain.inference.language_model import PermutationLM
from pretrain.model.transformer import TwoStreamTransformer
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

SEGMENT = 48


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    # Tiny matrices: threads would spend their time waiting for each other.
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def text_corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("prep")
    return write_corpus(
        folder, {split: stdlib_packages(["string"]) for split in ("train", "validation", "test")}
    )


@pytest.fixture(scope="module")
def network(text_corpus: PreparedCorpus) -> TwoStreamTransformer:
    return tiny_model(text_corpus.tokenizer.vocab_size).eval()


@pytest.fixture(scope="module")
def lm(text_corpus: PreparedCorpus, network: TwoStreamTransformer) -> PermutationLM:
    return PermutationLM(network, text_corpus.tokenizer, SEGMENT)
