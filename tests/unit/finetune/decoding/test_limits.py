"""Texts that would never end are cut."""

import numpy as np
import pytest
import torch

from data_prep.documents import SPECIAL_TOKENS
from finetune.decoding.config import DecodingConfig
from finetune.decoding.decode import choose_tokens, ended_by

_VOCAB = 200


class Stutterer:
    """Says the same token again and again, and never that a text ends."""

    def __init__(self, lanes: int) -> None:
        self._scores_BV = torch.zeros(lanes, _VOCAB, dtype=torch.float64)
        self._scores_BV[:, 150] = 9.0
        self._scores_BV[:, SPECIAL_TOKENS.index("<eod>")] = -torch.inf

    def first(self) -> torch.Tensor:
        return self._scores_BV

    def following(self, token_B: torch.Tensor) -> torch.Tensor:
        return self._scores_BV

    def reorder(self, lane_B: torch.Tensor) -> None:
        pass

    def retain(self, lane_X: torch.Tensor) -> None:
        self._scores_BV = self._scores_BV[lane_X]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_text_is_as_long_as_its_source_allows(beam: int) -> None:
    contexts = [np.arange(n) for n in (4, 40, 400)]
    config = DecodingConfig(beam=beam, max_length_ratio=1.5)
    rules = ended_by("<eod>", config)
    found = choose_tokens(Stutterer(3 * beam), contexts, [0, 0, 0], config, 100, rules, torch.device("cpu"))
    assert [len(one.tokens) for one in found] == [6 + 16, 60 + 16, 100]
    assert not any(one.ended for one in found)


def test_without_a_ratio_the_limit_of_the_system_counts() -> None:
    assert DecodingConfig().limit_tokens(3, 100) == 100
    assert DecodingConfig(max_length_ratio=2.0).limit_tokens(3, 10) == 10
