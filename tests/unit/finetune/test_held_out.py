"""Documents of held-out packages."""

from itertools import islice
from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.held_out import held_out_documents
from tests.example_corpus import stdlib_packages, write_corpus


def test_text_is_the_file_and_tokens_are_those_of_the_text(corpus: PreparedCorpus) -> None:
    documents = list(held_out_documents(corpus, "test", seed=1))
    texts = {
        f"{name}/{path}": text
        for name, files in stdlib_packages(["statistics", "tarfile", "heapq", "fnmatch"]).items()
        for path, text in files.items()
    }
    assert {document.name: document.text for document in documents} == texts
    for document in documents:
        assert document.tokens.tolist() == corpus.tokenizer.encode(document.text).tolist()


def test_same_seed_same_order_and_packages_take_turns(tmp_path: Path) -> None:
    packages = {f"p{p}": {f"f{n}.py": f"x = {p}{n}\n" for n in range(4)} for p in range(5)}
    packages["p0"]["README.md"] = "not Python"
    corpus = write_corpus(tmp_path, {"test": packages})
    orders = [
        [document.name for document in held_out_documents(corpus, "test", seed)] for seed in (1, 1, 2, 3, 4)
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1
    assert sorted(orders[0]) == sorted(f"p{p}/f{n}.py" for p in range(5) for n in range(4))
    for first in range(0, 20, 5):
        assert {name.split("/")[0] for name in islice(orders[0], first, first + 5)} == set(packages)


def test_split_without_python_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"test": {"p": {"README.md": "words"}}})
    with pytest.raises(UserError, match="the test split has no Python document"):
        next(held_out_documents(corpus, "test", seed=0))


def test_damaged_shard_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"test": stdlib_packages(["heapq"])})
    path = tmp_path / "shards" / "test-00000.tar"
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="test-00000.tar is damaged"):
        next(held_out_documents(corpus, "test", seed=0))


def test_of_a_large_split_some_blocks_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {f"p{p}": {f"f{n}.py": f"x = {p}{n}\n" * 30 for n in range(4)} for p in range(5)}
    corpus = write_corpus(tmp_path, {"test": packages}, block_docs=2)
    sizes = [entry.num_tokens for entry in corpus.blocks("test")]
    assert len(sizes) > 8
    whole = [document.name for document in held_out_documents(corpus, "test", 1)]
    most = sum(sizes) // 3
    monkeypatch.setattr("finetune.held_out.MOST_TOKENS", most)
    some, again, other = (list(held_out_documents(corpus, "test", seed)) for seed in (1, 1, 2))
    assert [document.name for document in some] == [document.name for document in again]
    assert {document.name for document in some} != {document.name for document in other}
    assert {document.name for document in some} < set(whole)
    num_tokens = sum(len(document.tokens) + 1 for document in some)
    assert most <= num_tokens < most + max(sizes)
