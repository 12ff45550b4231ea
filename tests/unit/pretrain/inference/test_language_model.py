"""Text in, text out, by a model in memory."""

import numpy as np
import pytest
import torch

from cluster.errors import UserError
from data_prep.documents import SPECIAL_TOKENS
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.sampling import Sampling
from pretrain.inference.session import DecodingSession
from pretrain.orders.config import ObjectiveConfig


def test_completions_come_in_the_order_of_prompts_whatever_the_batch(lm: PermutationLM) -> None:
    prompts = ["def f(", "import string\n" * 30, "x", "class A:\n"]
    sampling = Sampling(0.9, seed=1)
    together = lm.complete(prompts, max_new_tokens=12, sampling=sampling, num_samples=2)
    narrow = lm.complete(prompts, max_new_tokens=12, sampling=sampling, num_samples=2, max_lanes=1)
    for other in (
        narrow,
        lm.complete(prompts, max_new_tokens=12, sampling=sampling, num_samples=2, max_lanes=5),
    ):
        assert [one.text for one in together] == [one.text for one in other]
    assert [one.data for one in together] == [one.data for one in narrow]


def test_no_more_lanes_than_allowed_are_decoded_side_by_side(
    lm: PermutationLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[int] = []
    whole = lm.complete(["x", "def f("], max_new_tokens=4, sampling=Sampling(0.9), num_samples=5)
    advance = DecodingSession.repeat_lanes

    def repeat(session: DecodingSession, times: int) -> None:
        advance(session, times)
        lanes.append(len(session.offset_B))

    monkeypatch.setattr(DecodingSession, "repeat_lanes", repeat)
    reported = [""] * 10

    def show(number: int, text: str) -> None:
        reported[number] += text

    found = lm.complete(
        ["x", "def f("], max_new_tokens=4, sampling=Sampling(0.9), num_samples=5, max_lanes=3, on_text=show
    )
    assert [one.text for one in found] == [one.text for one in whole] == reported
    assert lanes == [3, 2, 3, 2]


def test_streamed_text_is_the_completions_text(lm: PermutationLM) -> None:
    reported = ["", "", ""]

    def show(number: int, text: str) -> None:
        reported[number] += text

    found = lm.complete(["def f(", "x", "y"], max_new_tokens=12, on_text=show, max_lanes=2)
    assert reported == [one.text for one in found]


def test_a_stop_string_ends_the_text_before_it(lm: PermutationLM) -> None:
    free = lm.complete("def f(", max_new_tokens=12)[0]
    stop = free.text[3:5]
    found = lm.complete("def f(", max_new_tokens=12, stop=[stop])[0]
    assert found.finish == "stop"
    assert found.text == free.text[: free.text.index(stop)]
    beam = lm.complete("def f(", max_new_tokens=12, stop=[stop], beam=1)[0]
    assert (beam.text, beam.finish) == (found.text, "stop")


def test_texts_of_a_beam_that_are_alike_before_their_stop_are_one(lm: PermutationLM) -> None:
    free = lm.complete("def f(", max_new_tokens=6, beam=4, num_samples=4)
    stop = free[0].data[-1:]
    wanted = list(dict.fromkeys(one.data.split(stop)[0] for one in free))
    assert len(wanted) < 4, "the texts must differ behind the stop, or this tests nothing"
    found = lm.complete("def f(", max_new_tokens=6, beam=4, num_samples=4, stop=stop)
    assert [one.data for one in found] == wanted
    assert found[0].log_likelihood == free[0].log_likelihood
    assert lm.complete("def f(", max_new_tokens=6, beam=4, num_samples=2, stop=[stop]) == found[:2]


def test_a_single_stop_string_is_one(lm: PermutationLM) -> None:
    stop = lm.complete("def f(", max_new_tokens=12)[0].text[3:5]
    for beam in (None, 1):
        wanted = lm.complete("def f(", max_new_tokens=12, stop=[stop], beam=beam)
        for one in (stop, stop.encode()):
            assert lm.complete("def f(", max_new_tokens=12, stop=one, beam=beam) == wanted


def test_special_tokens_are_never_written(lm: PermutationLM) -> None:
    with torch.no_grad():
        bias_V = lm.network.output_bias_V.clone()
        lm.network.output_bias_V[2 : len(SPECIAL_TOKENS)] = 50.0
        try:
            found = lm.complete("def f(", max_new_tokens=6, sampling=Sampling(1.0))
            found += lm.infill("def f(", "pass", length=5, order="most_certain", at_once=2)
        finally:
            lm.network.output_bias_V.copy_(bias_V)
    for one in found:
        assert one.data or one.finish == "end"
        assert one.num_tokens == 0 or len(one.data) > 0


def test_the_end_of_the_document_ends_a_completion(lm: PermutationLM) -> None:
    with torch.no_grad():
        lm.network.output_bias_V[lm.tokenizer.eod_id] += 100.0
        try:
            found = lm.complete("def f(", max_new_tokens=6)[0]
        finally:
            lm.network.output_bias_V[lm.tokenizer.eod_id] -= 100.0
    assert (found.text, found.num_tokens, found.finish) == ("", 0, "end")


@pytest.mark.parametrize(
    "options",
    [
        {"length": 5},
        {"length": 5, "beam": 3},
        {"length": 5, "order": "most_certain", "at_once": 2},
        {"max_new_tokens": 9},
        {"max_new_tokens": 9, "beam": 3},
        {"max_new_tokens": 9, "sampling": Sampling(0.9)},
    ],
)
def test_holes_are_filled_with_as_many_tokens_as_wanted(
    lm: PermutationLM, options: dict[str, object]
) -> None:
    found = lm.infill("def f(", "):\n    return x\n", **options)[0]  # type: ignore[arg-type]
    if "length" in options:
        assert (found.num_tokens, found.finish) == (5, "length")
    else:
        assert found.num_tokens <= 9
        assert found.finish in ("end", "length")
    assert found.log_likelihood < 0


@pytest.mark.parametrize("beam", [None, 3])
def test_a_hole_that_the_model_would_fill_further_is_cut(lm: PermutationLM, beam: int | None) -> None:
    end = lm.tokenizer.special_id("<end_hole>")
    for bias, finish in ((-50.0, "length"), (50.0, "end")):
        with torch.no_grad():
            lm.network.output_bias_V[end] += bias
            try:
                found = lm.infill("def f(", "):\n    return x\n", max_new_tokens=5, beam=beam)[0]
            finally:
                lm.network.output_bias_V[end] -= bias
        assert found.finish == finish


def test_several_holes_are_filled_together(lm: PermutationLM) -> None:
    parts = ["def ", "(x):\n", " return x\n"]
    found = lm.infill_holes(parts, length=[3, 2])
    assert [one.num_tokens for one in found.holes] == [3, 2]
    assert found.log_likelihood == pytest.approx(sum(one.log_likelihood for one in found.holes))
    assert 1 <= found.num_passes <= 6
    assert lm.infill_holes(parts, length=[3, 2], order="left_to_right").order == (0, 1)
    assert lm.infill_holes(parts, length=[3, 2], order=[1, 0]).order == (1, 0)
    # The last one sees the first one's text, so it is filled as if that had been there.
    in_turn = lm.infill_holes(parts, order=[0, 1], max_new_tokens=6)
    alone = lm.infill(parts[0] + in_turn.holes[0].text + parts[1], parts[2], max_new_tokens=6)[0]
    tokens = [lm.tokenizer.encode(text) for text in (parts[0], in_turn.holes[0].text, parts[1])]
    joined = lm.tokenizer.encode(parts[0] + in_turn.holes[0].text + parts[1])
    if np.concatenate(tokens).tolist() == joined.tolist():
        assert in_turn.holes[1] == alone


def test_one_hole_is_filled_as_by_infill(lm: PermutationLM) -> None:
    for length in (4, None):
        found = lm.infill_holes(["def f(", "):\n    return x\n"], length=length, max_new_tokens=9, order=[0])
        alone = lm.infill("def f(", "):\n    return x\n", length=length, max_new_tokens=9)[0]
        assert found.holes[0].data == alone.data
        assert found.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-5)


def test_samples_of_holes_differ_by_number_and_not_by_call(lm: PermutationLM) -> None:
    def sampled(sample: int) -> tuple[str, ...]:
        found = lm.infill_holes(["def ", "(x", "):"], length=6, sampling=Sampling(1.0), sample=sample)
        return tuple(one.text for one in found.holes)

    assert sampled(0) == sampled(0) != sampled(1)


def test_a_model_that_never_ended_a_hole_needs_its_length(lm: PermutationLM) -> None:
    objective = ObjectiveConfig(known_length_share=1.0)
    without = PermutationLM(lm.network, lm.tokenizer, lm.segment_tokens, objective)
    with pytest.raises(UserError, match="not trained to end a hole"):
        without.infill("a", "b")
    with pytest.raises(UserError, match="not trained to end a hole"):
        without.infill_holes(["a", "b", "c"], length=[1, None])
    assert without.infill("a", "b", length=2)
    assert without.infill_holes(["a", "b", "c"], length=1)


def test_bad_requests_are_refused(lm: PermutationLM) -> None:
    for prompts in ("", [], ["a", ""]):
        with pytest.raises(UserError, match="prompt is empty"):
            lm.complete(prompts)
    with pytest.raises(UserError, match="number of samples"):
        lm.complete("a", num_samples=0)
    with pytest.raises(UserError, match="number of samples must be at most 1048576"):
        lm.complete("a", num_samples=10**12)
    with pytest.raises(UserError, match="a beam must be at most 1024 texts wide"):
        lm.complete("a", beam=10**12)
    with pytest.raises(UserError, match="a hole can be filled 1024 times at once"):
        lm.infill("a", "b", length=2, num_samples=10**6)
    with pytest.raises(UserError, match="a beam of 2 cannot give 3"):
        lm.complete("a", beam=2, num_samples=3)
    with pytest.raises(UserError, match="needs a known length"):
        lm.infill("a", "b", order="most_certain")
    with pytest.raises(UserError, match="order must be one of most_certain, left_to_right, got 'surest'"):
        lm.infill("a", "b", length=2, order="surest")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="parts must be several texts, got one"):
        lm.infill_holes("ab")
    with pytest.raises(UserError, match="the text has no hole"):
        lm.infill_holes(["a"])
    with pytest.raises(UserError, match="there are 2 holes and 1 lengths"):
        lm.infill_holes(["a", "b", "c"], length=[1])
    with pytest.raises(UserError, match="order must be one of most_certain, left_to_right, got 'surest'"):
        lm.infill_holes(["a", "b"], length=1, order="surest")  # type: ignore[arg-type]


def test_scores_and_vectors_come_from_the_same_model(lm: PermutationLM) -> None:
    assert lm.score("import string\n")[0].scores.log_likelihood < 0
    vectors = lm.embed(["import string\n", "def f(): pass"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
