"""The counting baselines."""

import numpy as np

from finetune.lexical import TfidfSearch, sub_tokens


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
