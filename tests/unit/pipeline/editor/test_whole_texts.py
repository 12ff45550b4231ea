"""Several holes and scans over HTTP are what the model answers from Python."""

import math

import pytest

from pretrain.inference.language_model import PermutationLM
from pretrain.orders.config import ObjectiveConfig
from tests.unit.pipeline.editor.conftest import CODE, SEGMENT, Server, running

PARTS = [CODE[:20], CODE[25:35], CODE[40:60]]


@pytest.mark.parametrize("order", ["most_certain", "left_to_right", [1, 0]])
@pytest.mark.parametrize("lengths", [None, [3, None], [2, 4]])
def test_holes_are_filled_together(
    server: Server, lengths: list[int | None] | None, order: str | list[int]
) -> None:
    body = {"parts": PARTS, "lengths": lengths, "max_tokens": 5, "order": order}
    answer = server.post("/v1/holes", body)
    expected = server.lm.infill_holes(PARTS, length=lengths, max_new_tokens=5, order=order)  # type: ignore[arg-type]
    assert [one["text"] for one in answer["holes"]] == [one.text for one in expected.holes]
    assert answer["order"] == list(expected.order)
    assert answer["log_likelihood"] == pytest.approx(expected.log_likelihood)
    assert answer["num_passes"] == expected.num_passes
    assert math.fsum(one["log_likelihood"] for one in answer["holes"]) == pytest.approx(
        answer["log_likelihood"]
    )


def test_samples_of_holes_depend_on_the_seed_alone(server: Server) -> None:
    body = {"parts": PARTS, "temperature": 1, "max_tokens": 8, "seed": 1}
    first = server.post("/v1/holes", body)["holes"]
    assert server.post("/v1/holes", body)["holes"] == first
    assert server.post("/v1/holes", {**body, "seed": 2})["holes"] != first


@pytest.mark.parametrize("fast", [False, True])
def test_lines_have_the_models_figures(server: Server, fast: bool) -> None:
    text = CODE[:100]
    answer = server.post("/v1/scan", {"text": text, "fast": fast, "top": 2})
    (expected,) = server.lm.scan(text, fast=fast)
    assert [one["line"] for one in answer["lines"]] == [line.number for line in expected.lines]
    assert [one["bits_given_rest"] for one in answer["lines"]] == pytest.approx(
        [line.surprise_bits for line in expected.lines]
    )
    ranked = expected.ranked()[:2]
    assert answer["top"] == [line.number for line in ranked]
    written = {one["line"]: one["instead"] for one in answer["lines"] if one["instead"] is not None}
    for line, instead in zip(ranked, server.lm.rewrite_lines(text, ranked), strict=True):
        if instead is not None:
            assert written.pop(line.number)["text"] == instead.text
    assert written == {}


def test_a_model_that_never_saw_holes_fills_none(lm: PermutationLM) -> None:
    objective = ObjectiveConfig(spans=0.0, left_to_right=1.0, infill=0.0)
    blind = PermutationLM(lm.network, lm.tokenizer, SEGMENT, objective)
    servers = running(blind)
    server = next(servers)
    try:
        bodies = {
            "/infill": {"input_prefix": "x", "input_suffix": "y", "n_predict": 3},
            "/v1/completions": {"prompt": "x", "suffix": "y"},
            "/v1/holes": {"parts": ["x", "y"]},
            "/v1/scan": {"text": "x = 1\n"},
        }
        for path, body in bodies.items():
            status, answer = server.ask("POST", path, body)
            assert status == 400
            assert "trained from left to right only" in answer["error"]["message"]
        assert server.post("/v1/completions", {"prompt": "x", "temperature": 0})["choices"]
    finally:
        next(servers, None)
