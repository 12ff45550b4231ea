"""Several tokens a pass from left to right write what one token a pass writes, in fewer passes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length, fill_unknown_length
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.speculation import Drafter
from pretrain.inference.token_rules import TokenRules
from tests.small_models import VOCAB, small_model

FP64_TOLERANCE = 1e-10
END = 4
SAMPLINGS = {
    "greedy": GREEDY,
    "hot": Sampling(1.5, seed=1),
    "top-k": Sampling(0.7, top_k=3, seed=2),
    "top-p": Sampling(1.0, top_p=0.6, seed=3),
}


def repeating(seed: int, length: int) -> np.ndarray:
    """Tokens of which many follow the same ones again, so that drafts are often right."""
    random = np.random.default_rng(seed)
    return np.resize(random.integers(0, VOCAB, 5), length)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(1, 18)), min_size=1, max_size=4
    ),
    sampling=st.sampled_from(list(SAMPLINGS)),
    at_once=st.sampled_from([2, 3, 6, 40]),
    is_known=st.booleans(),
    num_samples=st.integers(1, 3),
    seed=st.integers(0, 50),
)
def test_what_is_written_is_what_one_token_a_pass_writes(
    sizes: list[tuple[int, int, int]],
    sampling: str,
    at_once: int,
    is_known: bool,
    num_samples: int,
    seed: int,
) -> None:
    decoder = Decoder(small_model(seed=seed), 24)
    holes = [
        HoleRequest(Sides(repeating(number, before), repeating(number, after)), length)
        for number, (before, after, length) in enumerate(sizes)
    ]
    fill = fill_known_length if is_known else fill_unknown_length
    rules = TokenRules(never=(5,), end=END)
    found, wanted = (
        fill(decoder, holes, SAMPLINGS[sampling], rules, num_samples=num_samples, at_once=most)
        for most in (at_once, 1)
    )
    for row, wanted_row in zip(found, wanted, strict=True):
        assert [one.tokens for one in row] == [one.tokens for one in wanted_row]
        for one, other in zip(row, wanted_row, strict=True):
            assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=FP64_TOLERANCE)
            assert (one.ended, one.forced) == (other.ended, other.forced)


def test_text_that_the_model_repeats_takes_few_passes() -> None:
    for is_known in (True, False):
        passes = {}
        for at_once in (1, 8):
            decoder = Decoder(small_model(), 48)
            fill = fill_known_length if is_known else fill_unknown_length
            request = HoleRequest(Sides(repeating(0, 12), repeating(0, 5)), 24)
            ((found,),) = fill(decoder, [request], GREEDY, TokenRules(end=END), at_once=at_once)
            passes[at_once] = decoder.num_passes
        # A random model writes one token again and again after some time.
        assert passes[8] < passes[1] / 2
        assert found.tokens


def test_a_draft_is_what_followed_the_longest_run_last() -> None:
    drafter = Drafter([1, 2, 3, 9, 2, 3, 7, 1, 2, 3], [])
    assert drafter.drafts(4) == [9, 2, 3, 7]
    other = drafter.copy()
    drafter.add(8)
    assert drafter.drafts(3) == []
    assert other.drafts(1) == [9]
    drafter.add(3)
    assert drafter.drafts(1) == [8], "3 was followed by 8 last"
    assert Drafter([], []).drafts(3) == []
    assert Drafter([5], [5, 6]).drafts(2) == [6]
