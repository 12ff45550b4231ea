"""Every token is traced back to its line, checked against the text."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.finished.forget_requests import ForgetRequest
from data_prep.finished.prepared import open_prepared
from data_prep.finished.trace import trace_range, trace_token
from data_prep.forget import forget
from tests.unit.data_prep.finished.written import Layout


def test_every_token_of_a_split_leads_to_its_line_and_column(prep: Path, layout: Layout) -> None:
    corpus = open_prepared(prep)
    documents = [d for tar in layout["train"] for block in tar for d in block]
    position = 0
    for document in documents:
        ids = corpus.tokenizer.encode(document.text)
        data = document.text.encode()
        for number in range(len(ids) + 1):
            traced = trace_token(corpus, "train", position)
            position += 1
            assert (traced.document.id, traced.token_in_document) == (document.id, number)
            assert traced.is_end_of_document == (number == len(ids))
            before = corpus.tokenizer.decode_bytes(ids[:number])
            assert data.startswith(before)
            lines = before.decode(errors="ignore").split("\n")
            assert (traced.first.line, traced.first.column) == (len(lines), len(lines[-1]) + 1)
            assert traced.first.text == document.text.split("\n")[len(lines) - 1]
    assert position == corpus.manifest.num_tokens("train")


def test_a_range_is_traced_document_by_document(prep: Path, layout: Layout) -> None:
    corpus = open_prepared(prep)
    entry = corpus.blocks("train")[0]
    starts = corpus.read_block(entry).doc_starts
    found = trace_range(corpus, entry, 2, entry.num_tokens - 5)
    assert [part.document.path for part in found] == [d.path for d in layout["train"][0][0]]
    assert [part.token_in_block for part in found] == [2, starts[1], starts[2]]
    assert sum(part.num_tokens for part in found) == entry.num_tokens - 5
    assert [part.is_end_of_document for part in found] == [True, True, False]
    assert (found[1].first.line, found[1].first.column, found[1].last.line) == (1, 1, 6)


@pytest.mark.parametrize("token", [-1, 10**9])
def test_a_position_outside_the_split_is_bad_input(prep: Path, token: int) -> None:
    with pytest.raises(
        UserError, match=rf"split 'train' has no token {token}: give a position from 0 to \d+"
    ):
        trace_token(open_prepared(prep), "train", token)


def test_an_empty_split_is_called_empty(prep: Path) -> None:
    forget(prep, (ForgetRequest(repository="epsilon"),))
    with pytest.raises(UserError, match="split 'validation' is empty: choose one of test, train$"):
        trace_token(open_prepared(prep), "validation", 0)


def test_an_unknown_split_is_bad_input(prep: Path) -> None:
    with pytest.raises(UserError, match="no split 'dev': choose one of test, train, validation"):
        trace_token(open_prepared(prep), "dev", 0)
