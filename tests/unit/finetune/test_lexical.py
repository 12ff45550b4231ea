"""The counting baselines."""

import math

import numpy as np

from finetune.lexical import BigramPredictor, TfidfSearch, sub_tokens


def test_sub_tokens_split_on_case_underscores_and_digits() -> None:
    assert sub_tokens("readHTTPHeader_v2(self.größeÄ) -> X") == [
        *["read", "http", "header", "v", "2", "self", "größeä", "x"]
    ]


def test_tfidf_finds_the_function_whose_rare_words_are_asked_for() -> None:
    codes = ["def read_header(self): return self.x", "def writeBody(self): return self.y"]
    search = TfidfSearch([*codes, "self return def"])
    scores = search.scores(["write the body", "read header", "unknown words"], codes)
    assert scores.shape == (3, 2)
    assert scores.argmax(axis=1)[:2].tolist() == [1, 0]
    assert np.all(scores[2] == 0)


def test_bigram_predicts_the_most_frequent_follower() -> None:
    predictor = BigramPredictor([["a", "b", "a", "c"], ["a", "c", "c", "c"]])
    assert predictor.next_lexeme("a") == "c"
    assert predictor.next_lexeme("b") == "a"
    assert predictor.next_lexeme("never seen") == "c"
    assert BigramPredictor([]).next_lexeme("a") == ""


def test_a_follower_has_its_place_among_those_counted_as_often_or_more() -> None:
    predictor = BigramPredictor([["a", "b", "a", "c", "a", "b", "a", "d"]])
    assert [predictor.rank("a", following) for following in ("b", "c", "d", "e")] == [1, 3, 3, math.inf]
    assert [predictor.rank("unseen", following) for following in ("a", "b", "c")] == [1, 2, 4]
    assert BigramPredictor([]).rank("a", "b") == math.inf
