"""The overview adds up to the documents; every kept one can be read."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.finished.inspection import overview, read_document, sample_ids
from data_prep.finished.prepared import open_prepared
from tests.unit.data_prep.finished.written import SOURCE, Layout


def test_the_overview_counts_every_document_once(prep: Path, layout: Layout) -> None:
    documents = [d for tars in layout.values() for tar in tars for block in tar for d in block]
    found = overview(open_prepared(prep), num_longest=3)
    summary = found.summary
    assert (summary["num_files_listed"], summary["num_files_kept"]) == (len(documents) + 1, len(documents))
    assert summary["dropped_by_rule"] == {"file_size": 1}
    for name, key in (("languages", "language"), ("licences", "licence")):
        counts = {value: entry["num_files"] for value, entry in summary[name].items()}
        values = [getattr(document, key) or "unknown" for document in documents]
        assert counts == {value: values.count(value) for value in set(values)}
    assert summary["sources"][SOURCE]["num_docs"] == len(documents)
    corpus = open_prepared(prep)
    num_tokens = sorted((len(corpus.tokenizer.encode(d.text)) + 1 for d in documents), reverse=True)
    assert [document.num_tokens for document in found.longest] == num_tokens[:3]


def test_every_kept_document_can_be_read_by_its_id(prep: Path, layout: Layout) -> None:
    corpus = open_prepared(prep)
    for split, tars in layout.items():
        for document in (d for tar in tars for block in tar for d in block):
            shown = read_document(corpus, document.id)
            assert (shown.split, shown.meta.path, shown.text) == (split, document.path, document.text)


def test_a_sample_is_of_different_documents_and_the_same_each_time(prep: Path, layout: Layout) -> None:
    corpus = open_prepared(prep)
    num_documents = sum(len(block) for tars in layout.values() for tar in tars for block in tar)
    assert sample_ids(corpus, 4) == sample_ids(corpus, 4)
    assert len(set(sample_ids(corpus, 10**6))) == num_documents


def test_ids_without_text_are_bad_input(prep: Path) -> None:
    corpus = open_prepared(prep)
    with pytest.raises(UserError, match="has no document 0123"):
        read_document(corpus, "0123")
    ledger = corpus.ledger().to_pylist()
    dropped = next(row["id"] for row in ledger if row["decision"] == "dropped")
    with pytest.raises(UserError, match="was dropped by rule file_size"):
        read_document(corpus, dropped)
