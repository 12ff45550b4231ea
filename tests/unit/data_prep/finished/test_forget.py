"""Forgetting removes what was requested and nothing else, even when it is killed."""

import json
import shutil
from pathlib import Path

import pytest

import data_prep.forget
from cluster.errors import UserError
from data_prep.finished.forget_requests import ForgetRequest, ForgetRequests, read_requests, record_request
from data_prep.finished.prepared import open_prepared
from data_prep.finished.verification import verify_prepared
from data_prep.forget import forget, plan_forgetting
from tests.killed_writes import Killed, kill_at
from tests.unit.data_prep.finished.written import Document, Layout

ALPHA = (ForgetRequest(repository="alpha"),)
C_FILES = (ForgetRequest(path="*.c"),)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def kept_texts(folder: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Return (repository, path, text) of every document that a reader finds, in order, by split."""
    corpus = open_prepared(folder)
    return {
        split: [
            (meta.repository, meta.path, corpus.tokenizer.decode(block.document_tokens(i)))
            for block in map(corpus.read_block, corpus.blocks(split))
            for i, meta in enumerate(block.docs)
        ]
        for split in corpus.manifest.splits
    }


def expected_texts(layout: Layout, is_gone: str) -> dict[str, list[tuple[str, str, str]]]:
    def stays(document: Document) -> bool:
        return document.repository != is_gone and not document.path.endswith(is_gone)

    return {
        split: [(d.repository, d.path, d.text) for tar in tars for block in tar for d in block if stays(d)]
        for split, tars in layout.items()
    }


@pytest.mark.parametrize(("requests", "gone"), [(ALPHA, "alpha"), (C_FILES, ".c")])
def test_requested_documents_are_removed_and_the_rest_stays_in_order(
    prep: Path, layout: Layout, requests: tuple[ForgetRequest, ...], gone: str
) -> None:
    forget(prep, requests)
    assert kept_texts(prep) == expected_texts(layout, gone)
    verify_prepared(prep)


def test_tars_without_matches_keep_every_byte_and_their_names(prep: Path) -> None:
    before = contents(prep)
    done = forget(prep, ALPHA)
    after = contents(prep)
    assert done.shards == ("train-00000", "train-00002")
    touched = {f"shards/{name}.{suffix}" for name in done.shards for suffix in ("tar", "index.json")}
    for name in before.keys() - touched - {"manifest.json", "ledger.parquet"}:
        assert after[name] == before[name]
    assert not touched & after.keys()
    assert {"shards/train-00000-r2.tar", "shards/train-00002-r2.tar", "ledger-r2.parquet"} <= after.keys()


def test_no_byte_of_a_forgotten_text_is_left(prep: Path, layout: Layout) -> None:
    """Its tokens are in no tar, at no alignment."""
    corpus = open_prepared(prep)
    removed = [d for tar in layout["train"] for block in tar for d in block if d.repository == "alpha"]
    needles = [corpus.tokenizer.encode(d.text).tobytes() for d in removed]
    stored = b"".join(data for name, data in contents(prep).items() if name.endswith(".tar"))
    assert all(needle in stored for needle in needles)
    forget(prep, ALPHA)
    stored = b"".join(data for name, data in contents(prep).items() if name.endswith(".tar"))
    assert not any(needle in stored for needle in needles)


def test_untouched_blocks_of_a_rewritten_tar_keep_their_key_and_bytes(prep: Path) -> None:
    before = {entry.key: entry for entry in open_prepared(prep).blocks("train")}
    forget(prep, ALPHA)
    after = {entry.key: entry for entry in open_prepared(prep).blocks("train")}
    assert set(before) - set(after) == {"train-00002-00000"}  # nothing was left of it
    for key in ("train-00000-00001", "train-00002-00001"):
        assert {name: m.sha256 for name, m in after[key].members.items()} == {
            name: m.sha256 for name, m in before[key].members.items()
        }


def test_the_ledger_says_what_was_forgotten_and_why(prep: Path) -> None:
    before = {row["id"]: row for row in open_prepared(prep).ledger().to_pylist()}
    forget(prep, ALPHA)
    after = {row["id"]: row for row in open_prepared(prep).ledger().to_pylist()}
    assert list(before) == list(after)
    for id_, row in before.items():
        if row["repository"] == "alpha" and row["decision"] == "kept":
            change = {"decision": "dropped", "rule": "forgotten", "detail": "repository alpha"}
            assert after[id_] == row | change | {"split": None, "block": None, "num_tokens": None}
        else:
            assert after[id_] == row


def test_the_revision_increases_and_the_manifest_counts_what_is_left(prep: Path) -> None:
    before = open_prepared(prep).manifest
    done = forget(prep, ALPHA)
    after = open_prepared(prep).manifest
    assert (before.revision, after.revision, done.revision) == (1, 2, 2)
    assert after.num_tokens("train") == before.num_tokens("train") - done.num_tokens
    assert after.sources["here"].num_docs == before.sources["here"].num_docs - 3
    assert after.sources["here"].num_tokens == sum(after.num_tokens(split) for split in after.splits)
    assert after.tokenizer_sha256 == before.tokenizer_sha256
    assert after.splits["test"] == before.splits["test"]


def test_a_second_call_changes_nothing(prep: Path) -> None:
    forget(prep, ALPHA)
    before = contents(prep)
    assert forget(prep, ALPHA).num_documents == 0
    assert contents(prep) == before


def test_forgetting_again_continues_from_the_last_revision(prep: Path, layout: Layout) -> None:
    forget(prep, ALPHA)
    forget(prep, (*ALPHA, ForgetRequest(repository="beta")))
    names = {path.name for path in (prep / "shards").glob("train-*.tar")}
    assert names == {"train-00000-r3.tar", "train-00001.tar", "train-00002-r2.tar"}
    assert open_prepared(prep).manifest.revision == 3
    repositories = {repository for repository, _, _ in kept_texts(prep)["train"]}
    assert repositories == {"gamma", "delta"}
    verify_prepared(prep)


def test_an_empty_tar_is_removed_and_a_split_may_be_empty(prep: Path) -> None:
    done = forget(prep, (ForgetRequest(repository="epsilon"), ForgetRequest(path="zeta/src/l.py")))
    manifest = open_prepared(prep).manifest
    assert manifest.splits["validation"] == ()
    assert [shard.name for shard in manifest.splits["test"]] == ["test-00001"]
    assert done.splits == ("test", "validation")
    assert not list((prep / "shards").glob("validation*"))
    verify_prepared(prep)


def test_empty_splits_are_reported_before_and_after(prep: Path) -> None:
    epsilon = (ForgetRequest(repository="epsilon"),)
    assert plan_forgetting(prep, ALPHA).empty_splits == ()
    assert plan_forgetting(prep, epsilon).empty_splits == ("validation",)
    assert forget(prep, epsilon).empty_splits == ("validation",)
    assert forget(prep, epsilon).empty_splits == ("validation",)
    requests = (*epsilon, ForgetRequest(repository="zeta"))
    assert plan_forgetting(prep, requests).empty_splits == ("test", "validation")
    assert plan_forgetting(prep, requests[1:]).empty_splits == ("test", "validation")


def test_a_plan_changes_nothing_and_reports_what_forgetting_does(prep: Path) -> None:
    before = contents(prep)
    planned = plan_forgetting(prep, ALPHA)
    assert contents(prep) == before
    assert forget(prep, ALPHA) == planned
    assert (planned.num_documents, planned.repositories, planned.num_shards) == (3, ("alpha",), 6)


def test_partial_files_of_a_killed_call_are_removed(prep: Path) -> None:
    for name in (
        ".ledger-r2.parquet.0011223344556677.tmp",
        "shards/.train-00000-r2.tar.0011223344556677.tmp",
    ):
        (prep / name).write_bytes(b"half")
    forget(prep, ALPHA)
    assert not list(prep.rglob("*.tmp"))


def test_killed_before_any_write_readers_see_old_or_new_and_repeating_finishes(
    prep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the process before each of the calls that change the folder."""
    old = kept_texts(prep)
    wanted = shutil.copytree(prep, tmp_path / "wanted")
    forget(wanted, ALPHA)
    new = kept_texts(wanted)
    num_kills = 0
    while True:
        folder = shutil.copytree(prep, tmp_path / f"killed{num_kills}")
        with monkeypatch.context() as patched:
            kill_at(patched, num_kills)
            try:
                forget(folder, ALPHA)
                break
            except Killed:
                pass
        assert kept_texts(folder) in (old, new)
        verify_prepared(folder)
        forget(folder, ALPHA)
        assert contents(folder) == contents(wanted)
        num_kills += 1
    # Two tars, two indexes, ledger, manifest; then the removal of two tars, two indexes and a ledger.
    assert num_kills == 11


def test_a_ledger_that_disagrees_with_the_shards_stops_before_the_manifest(
    prep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (prep / "manifest.json").read_bytes()
    stay_all = data_prep.forget._Revision._samples

    def samples(self: data_prep.forget._Revision, *arguments: object) -> object:
        self._removed_ids = set()
        return stay_all(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(data_prep.forget._Revision, "_samples", samples)
    with pytest.raises(UserError, match="the ledger names 3 documents to forget, but the shards contain 0"):
        forget(prep, ALPHA)
    assert (prep / "manifest.json").read_bytes() == before


def test_patterns_match_the_path_or_repository_and_path(tmp_path: Path) -> None:
    requests = ForgetRequests(
        (ForgetRequest(repository="a/b"), ForgetRequest(path="*/secret/*"), ForgetRequest(path="c/d/x.[ch]"))
    )
    repositories = ["a/b", "a/bb", "c/d", "c/d", "e"]
    paths = ["any.py", "secret.py", "x.c", "x.py", "deep/down/secret/key.py"]
    assert requests.match(repositories, paths) == [
        "repository a/b",
        None,
        "path c/d/x.[ch]",
        None,
        "path */secret/*",
    ]


def test_requests_are_recorded_once_in_order(tmp_path: Path) -> None:
    assert read_requests(tmp_path) == ()
    for request in (*ALPHA, *C_FILES, *ALPHA):
        record_request(tmp_path, request)
    assert read_requests(tmp_path) == (*ALPHA, *C_FILES)
    (tmp_path / "forgotten.json").write_text(json.dumps({"format": 1, "requests": [{"repo": "x"}]}))
    with pytest.raises(UserError, match="forgotten.json is damaged"):
        read_requests(tmp_path)


@pytest.mark.parametrize("values", [{}, {"repository": "a", "path": "b"}, {"repository": ""}, {"path": ""}])
def test_a_request_has_exactly_one_criterion(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give either a repository or a path pattern"):
        ForgetRequest(**values)
