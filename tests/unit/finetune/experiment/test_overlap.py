"""What of the test split the base has seen in pretraining: counted by role, reported once, metrics without it."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.decontamination import search
from data_prep.decontamination.search import Found
from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.overlap import Overlap, on_unseen, overlap_of, searched_texts
from finetune.metrics.bleu import codexglue_bleu
from finetune.modalities.ranking import Pool
from finetune.modalities.writing import Pair
from tests.unit.pipeline.recording_reporter import RecordingReporter

_SEEN = "def total ( prices , tax ) : return sum ( price * ( 1 + tax ) for price in prices )"


class Searches:
    """Stands for the search: what has "prices" in it is there, what is short cannot be decided."""

    def __init__(self) -> None:
        self.locations: list[list[str]] = []

    def __call__(self, texts: Sequence[str], locations: Sequence[str], folder: Path, reporter: Any) -> Found:
        self.locations.append(list(locations))
        folder.mkdir()
        shares = [
            float("nan") if len(text) < 20 else 1.0 if "prices" in text else 0.5 * ("half" in text)
            for text in texts
        ]
        return Found(np.array(shares), 1.0)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    found = Searches()
    monkeypatch.setattr(search, "search_corpora", found)
    return found


def _config(folder: Path, tests: Sequence[tuple[str, str]]) -> ExperimentConfig:
    for split, pairs in (("train", [("a b c", "x y z")] * 3), ("valid", [("a b", "x y")]), ("test", tests)):
        records = [json.dumps({"old": old, "new": new}) for old, new in pairs]
        (folder / f"{split}.jsonl").write_text("\n".join(records))
    task: dict[str, Any] = {"kind": "translation", "folder": folder, "source": "old", "target": "new"}
    task |= {split: f"{split}.jsonl" for split in ("train", "valid", "test")}
    return ExperimentConfig.model_validate({"task": task, "systems": {"copy": {"kind": "copy"}}})


_TESTS = [(_SEEN, "new one " * 5), ("old one " * 5, "half " * 9), ("short", _SEEN), ("short", "old two " * 5)]


def _overlap(
    config: ExperimentConfig, prep: Path, folder: Path, reporter: RecordingReporter
) -> Overlap | None:
    return overlap_of(config, None, [str(prep)], folder, reporter)


def test_texts_are_counted_by_role_and_items_by_any_of_theirs(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    reporter = RecordingReporter()
    found = _overlap(_config(tmp_path, _TESTS), corpus.folder, tmp_path, reporter)
    assert found is not None
    assert found.facts == {
        "texts": {
            "sources": {"texts": 3, "too_short": 1, "rewritten": 0, "verbatim": 1, "half": 1},
            "targets": {"texts": 4, "too_short": 0, "rewritten": 0, "verbatim": 1, "half": 2},
        },
        "searched_share": 1.0,
        "items": 4,
        "items_verbatim": 2,
    }
    assert found.items == {0, 2}
    assert searches.locations == [[str(corpus.folder)]]
    assert not (tmp_path / ".overlap").exists()
    (warning,) = reporter.warnings
    assert warning == (
        "translation: texts of the test split that occur verbatim in the pretraining corpus: 1 of 3 sources (1 too "
        "short to tell), 1 of 4 targets; prep.decontamination.sets keeps a set out (docs/data_prep.md)"
    )


def test_the_corpus_is_searched_once_for_the_same_items(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    reporter = RecordingReporter()
    first = _overlap(_config(tmp_path, _TESTS), corpus.folder, tmp_path, reporter)
    assert _overlap(_config(tmp_path, _TESTS), corpus.folder, tmp_path, reporter) == first
    assert len(searches.locations) == 1
    _overlap(_config(tmp_path, _TESTS[1:]), corpus.folder, tmp_path, reporter)
    assert len(searches.locations) == 2


def test_nothing_is_reported_of_items_that_are_not_there(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    reporter = RecordingReporter()
    found = _overlap(_config(tmp_path, _TESTS[3:]), corpus.folder, tmp_path, reporter)
    assert found is not None
    assert not found.items
    assert not reporter.warnings


def test_items_of_the_corpus_and_unknown_pretraining_are_not_searched_for(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    own = ExperimentConfig.model_validate(
        {"task": {"kind": "token_completion"}, "systems": {"n": {"kind": "ngram_predictor"}}}
    )
    reporter = RecordingReporter()
    assert overlap_of(own, corpus.folder, [str(corpus.folder)], tmp_path, reporter) is None
    assert overlap_of(_config(tmp_path, _TESTS), None, [], tmp_path, reporter) is None
    assert not searches.locations


def test_a_pretraining_corpus_that_is_gone_costs_the_overlap_and_not_the_experiment(
    tmp_path: Path, searches: Searches
) -> None:
    reporter = RecordingReporter()
    found = _overlap(_config(tmp_path, _TESTS), tmp_path / "gone", tmp_path, reporter)
    assert found == Overlap(None, frozenset(), "the pretraining corpus cannot be read")
    (warning,) = reporter.warnings
    assert warning.startswith("translation: what the base has seen of the test split is not known: ")
    assert "gone" in warning
    assert not (tmp_path / "overlap.json").exists()


def test_what_was_found_is_known_when_the_corpus_is_gone(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    prep, reporter = shutil.copytree(corpus.folder, tmp_path / "prep"), RecordingReporter()
    first = _overlap(_config(tmp_path, _TESTS), prep, tmp_path, reporter)
    prep.rename(tmp_path / "moved")
    reporter = RecordingReporter()
    assert _overlap(_config(tmp_path, _TESTS), prep, tmp_path, reporter) == first
    # Of a run whose prep folder is gone the places of its corpora are unknown.
    assert overlap_of(_config(tmp_path, _TESTS), None, [], tmp_path, reporter) == first
    assert overlap_of(_config(tmp_path, _TESTS[1:]), None, [], tmp_path, reporter) is None
    assert not reporter.warnings
    others = _overlap(_config(tmp_path, _TESTS[1:]), prep, tmp_path, reporter)
    assert others == _overlap(_config(tmp_path, _TESTS), tmp_path / "other", tmp_path, reporter)
    assert others == Overlap(None, frozenset(), "the pretraining corpus cannot be read")


def test_a_damaged_record_is_made_again_where_the_corpus_is_there(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    reporter = RecordingReporter()
    first = _overlap(_config(tmp_path, _TESTS), corpus.folder, tmp_path, reporter)
    path = tmp_path / "overlap.json"
    path.write_text(path.read_text().replace('"items_verbatim": 2', '"items_verbatim": 3'))
    assert _overlap(_config(tmp_path, _TESTS), corpus.folder, tmp_path, reporter) == first
    assert len(searches.locations) == 2
    path.write_text("{")
    assert _overlap(_config(tmp_path, _TESTS), tmp_path / "gone", tmp_path, reporter) == Overlap(
        None, frozenset(), "the pretraining corpus cannot be read"
    )


def _experiment(task: dict[str, Any], system: str) -> ExperimentConfig:
    return ExperimentConfig.model_validate({"task": task, "systems": {"one": {"kind": system}}})


def _java(name: str, number: int) -> str:
    return f"public int {name} ( int first , int second ) {{ int sum = first + {number} ; return sum * second ; }}"


@pytest.mark.parametrize(
    ("kind", "system", "role"),
    [("code_search", "lexical_ranker", "queries"), ("clone_pairs", "lexical_labeller", "texts")],
)
def test_texts_are_searched_as_the_files_have_them_with_their_names(
    kind: str, system: str, role: str, corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    for split in ("train", "valid", "test"):
        names = {"test": ["prices", "other"]}.get(split, [split, "more"])
        for side in ("java", "cs"):
            lines = [_java(name if side == "java" else name[::-1], k) for k, name in enumerate(names)]
            (tmp_path / f"{split}.java-cs.txt.{side}").write_text("".join(f"{line}\n" for line in lines))
    config = _experiment({"kind": kind, "folder": tmp_path, "names": "all_masked"}, system)
    found = _overlap(config, corpus.folder, tmp_path, RecordingReporter())
    assert found is not None
    assert found.facts is not None
    assert found.facts["texts"][role]["verbatim"] == 1
    # A pair for clone_pairs is two items: the right partner's and the wrong one's.
    assert found.items == ({0} if kind == "code_search" else {0, 1})


def test_texts_that_were_made_the_same_have_the_items_of_each() -> None:
    pool = Pool(["1", "2"], ["m", "m"], ["c"], [(0,), (0,)])
    published = {"m": ("first", "second"), "c": ("c", "d")}
    found = {(one.role, one.text): one.items for one in searched_texts(pool, published)}
    assert found == {
        ("queries", "first"): (0, 1),
        ("queries", "second"): (0, 1),
        ("candidates", "c"): (),
        ("candidates", "d"): (),
        ("answers", "c"): (0, 1),
        ("answers", "d"): (0, 1),
    }


def test_what_is_published_rewritten_cannot_be_reported(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    for split in ("train", "valid", "test"):
        for side in ("buggy", "fixed"):
            lines = [f"public TYPE_1 METHOD_{k} ( ) {{ return {side} ; }}\n" for k in range(20)]
            short = [f"public int {side} ( ) {{ return 1 ; }}\n"]
            (tmp_path / f"{split}.buggy-fixed.{side}").write_text("".join(lines + short))
    config = _experiment({"kind": "repair", "folder": tmp_path}, "copy")
    reporter = RecordingReporter()
    found = _overlap(config, corpus.folder, tmp_path, reporter)
    assert found is not None
    assert (found.facts, found.items) == (None, frozenset())
    assert "published" in found.unknown
    assert not searches.locations
    assert not reporter.warnings


def test_texts_with_literals_left_out_are_counted_apart(
    corpus: PreparedCorpus, tmp_path: Path, searches: Searches
) -> None:
    items = [
        {
            "input": "<s> name = '<STR_LIT>' + other + third + fourth",
            "gt": "fifth + sixth + seventh + eighth",
        },
        {"input": "<s> prices = '<STR_LIT:tax>' + other + third + fourth", "gt": "nothing"},
    ]
    (tmp_path / "dev.json").write_text("\n".join(map(json.dumps, items)))
    config = _experiment({"kind": "line_completion", "folder": tmp_path}, "copy")
    found = _overlap(config, corpus.folder, tmp_path, RecordingReporter())
    assert found is not None
    assert found.facts is not None
    assert found.facts["texts"] == {
        "sources": {"texts": 2, "too_short": 0, "rewritten": 1, "verbatim": 1, "half": 1},
        "targets": {"texts": 2, "too_short": 1, "rewritten": 0, "verbatim": 0, "half": 0},
    }


def test_candidates_answers_and_queries_of_a_pool_are_reported_apart() -> None:
    pool = Pool(["1", "2", "3"], ["q", "r", "q"], ["a", "b", "c"], [(0,), (0, 1), (1,)])
    found = {(one.role, one.text): one.items for one in searched_texts(pool)}
    assert found == {
        ("queries", "q"): (0, 2),
        ("queries", "r"): (1,),
        ("candidates", "a"): (),
        ("candidates", "b"): (),
        ("candidates", "c"): (),
        ("answers", "a"): (0, 1),
        ("answers", "b"): (1, 2),
    }


def test_the_headline_without_overlapping_items_is_that_of_the_others() -> None:
    items = [Pair(str(number), "s", (f"one two three four {number}",)) for number in range(6)]
    written = ["one two three four 0", "one two", "three four 2 one", "one two three four 3", "", "two 5"]
    whole = codexglue_bleu([item.references for item in items], written)
    (unseen,) = on_unseen(whole, frozenset({0, 3}), 6)
    kept = [1, 2, 4, 5]
    rest = codexglue_bleu([items[number].references for number in kept], [written[number] for number in kept])
    assert unseen.name == "bleu_unseen"
    assert unseen.value == pytest.approx(rest.value)
    assert unseen.num_items == 4
    assert on_unseen(whole, frozenset(), 6) == on_unseen(whole, frozenset(range(6)), 6) == []
    assert on_unseen(whole, frozenset({0}), 12) == [], "of a metric that is not of the items one by one"
