"""Copying, looking up and counting."""

import re
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.lexical import TfidfSearch
from finetune.modalities.writing import Pair
from finetune.systems.writers import lexical
from finetune.systems.writers.lexical import (
    ConstantConfig,
    ConstantWriter,
    CopyConfig,
    NearestConfig,
    NearestWriter,
    NgramConfig,
    NgramWriter,
)
from tests.task_data import TASK_DATA, needs_task_data
from tests.unit.finetune.systems.toys import as_data, toy_base, toy_pairs, written


def _pairs(*texts: tuple[str, str]) -> list[Pair]:
    return [Pair(str(number), source, (target,)) for number, (source, target) in enumerate(texts)]


def test_copies(corpus: PreparedCorpus) -> None:
    pairs = toy_pairs(3)
    writer = CopyConfig().build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)
    assert written(writer, pairs) == [pair.source for pair in pairs]
    assert writer.write([("before", "after")], lambda done: None) == [""]
    assert writer.learner is None


def test_the_constant_text_is_the_target_most_like_the_others(corpus: PreparedCorpus) -> None:
    texts = ["return the value", "return a list of names", "Return the list .", "close it", "return the file"]
    pairs = _pairs(*((str(number), text) for number, text in enumerate(texts)))
    writer = ConstantConfig().build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)
    assert set(written(writer, toy_pairs(3))) == {"Return the list ."}
    with pytest.raises(UserError, match="the targets to learn hold no words"):
        ConstantConfig().build(toy_base(corpus.tokenizer), as_data([]), seed=0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab .", max_size=8), min_size=2, max_size=12), st.integers(1, 5))
def test_the_constant_text_in_chunks_as_by_hand(texts: list[str], at_once: int) -> None:
    def words(text: str) -> set[str]:
        return {word for word in re.findall(r"\w+|[^\w\s]", text)}

    def mean_f1(text: str) -> float:
        return sum(
            2 * len(words(text) & words(other)) / max(1, len(words(text)) + len(words(other)))
            for other in texts
        ) / len(texts)

    assume(any(map(words, texts)))
    pairs = _pairs(*(("", text) for text in texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "TEXTS_AT_ONCE", at_once)
        (text,) = ConstantWriter(pairs, seed=1).write([("", None)], lambda done: None)
    assert mean_f1(text) == pytest.approx(max(map(mean_f1, texts)))


def test_looks_up_the_target_of_the_nearest_source(
    corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = _pairs(("read the file", "A"), ("write the socket", "B"), ("read the socket", "C"), ("?", "D"))
    writer = NearestConfig().build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)
    asked = _pairs(("readFile", ""), ("write_socket", ""), ("the socket read", ""), ("unseen", ""))
    assert written(writer, asked) == ["A", "B", "C", "A"], "of equals the first"
    monkeypatch.setattr(lexical, "MAX_PRODUCTS", 4)
    assert written(writer, asked) == ["A", "B", "C", "A"], "in chunks as at once"


def test_the_nearest_is_that_of_the_dense_product() -> None:
    pairs = toy_pairs()
    asked = [pair.source.replace("return", "give") for pair in toy_pairs(20)]
    score_QN = TfidfSearch([pair.source for pair in pairs]).scores(asked, [pair.source for pair in pairs])
    expected = [pairs[number].references[0] for number in score_QN.argmax(axis=1)]
    assert NearestWriter(pairs).write([(text, None) for text in asked], lambda done: None) == expected


def test_sources_without_words_are_refused() -> None:
    with pytest.raises(UserError, match="the training sources hold no words"):
        NearestWriter(_pairs(("?", "A"), ("!", "B")))


def test_goes_on_with_what_followed_the_longest_known_run() -> None:
    pairs = _pairs(("for x in ", "range(3):"), ("for y in ", "names:"), ("z in ", "names:"))
    writer = NgramWriter(NgramConfig(order=6), pairs)
    assert written(writer, _pairs(("for x in ", ""), ("q in ", ""), ("range(", ""))) == [
        "range(3):",
        "names:",
        "3):",
    ]
    assert NgramWriter(NgramConfig(), []).write([("a", None)], lambda done: None) == [""]


def test_ends_where_targets_end_though_sources_go_on_there() -> None:
    pairs = _pairs(("a ; b ; c ; d = ", "e ;"), ("a ; b ; c ; f = ", "g ;"), ("x = ", "h ( h ;"))
    writer = NgramWriter(NgramConfig(order=5), pairs)
    assert written(writer, _pairs(("q ; d = ", ""), ("x = ", ""))) == ["e ;", "h ( h ;"]
    lines = _pairs(("a = ", "f ( a )"), ("b ( c ) EOL b = ", "g ( b )"), ("d ( e ) EOL d = ", "g ( b )"))
    writer = NgramWriter(NgramConfig(order=3), lines)
    assert written(writer, _pairs(("z EOL b = ", ""))) == ["g ( b )"], (
        "though sources go on with EOL behind )"
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text("ab ", max_size=6), st.text("ab ", max_size=6)), min_size=1), st.data())
def test_every_lexeme_is_the_most_frequent_after_its_run(
    texts: list[tuple[str, str]], data: st.DataObject
) -> None:
    """By counting all over again, for the first lexeme written."""
    order = data.draw(st.integers(1, 4))
    source = data.draw(st.text("ab ", max_size=6))
    pairs = _pairs(*texts)
    found = NgramWriter(NgramConfig(order=order), pairs, max_new_lexemes=1).write(
        [(source, None)], lambda done: None
    )[0]
    past = lexical._LEXEME.findall(source)
    streams = [
        [*lexical._LEXEME.findall(pair.source), *lexical._LEXEME.findall(pair.references[0])]
        for pair in pairs
    ]
    for length in range(min(order - 1, len(past)), -1, -1):
        run = past[len(past) - length :]
        counts = Counter(
            stream[place]
            for stream in streams
            for place in range(length, len(stream))
            if stream[place - length : place] == run
        )
        held = {word.lstrip(" ") for pair in pairs for word in lexical._LEXEME.findall(pair.references[0])}
        counts = Counter({word: count for word, count in counts.items() if word.lstrip(" ") in held})
        if counts:
            assert counts[found] == max(counts.values())
            return
    assert found == ""


@needs_task_data
def test_looks_up_all_of_a_real_test_set() -> None:
    folder = TASK_DATA / "codexglue-translation"
    lines = {
        (split, side): (folder / f"{split}.java-cs.txt.{side}").read_text().split("\n")[:-1]
        for split in ("train", "test")
        for side in ("java", "cs")
    }
    writer = NearestWriter(_pairs(*zip(lines["train", "java"], lines["train", "cs"], strict=True)))
    found = writer.write([(text, None) for text in lines["test", "java"]], lambda done: None)
    num_exact = sum(one == wanted for one, wanted in zip(found, lines["test", "cs"], strict=True))
    assert 20 <= num_exact <= 200, "of 1000: test targets that training has verbatim are 59"
