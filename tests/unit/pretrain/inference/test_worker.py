"""Texts that share the passes of a worker get what `PermutationLM` gives each of them alone."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from pretrain.inference.history import HistoryCache
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.open_choice import OpenChoice
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.shared_writing import Answer, TextRequest
from pretrain.inference.worker import BusyError, Worker
from pretrain.model.config import (
    AbsoluteLearnedPositions,
    ModelConfig,
    PositionsConfig,
    RotaryPositions,
    ShawPositions,
    TransformerXLPositions,
)
from pretrain.model.transformer import TwoStreamTransformer

SEGMENT = 48
FP64_TOLERANCE = 1e-9
LINES = [f"def method_{number}(self, value):\n    return value + {number}\n" for number in range(40)]
SHORT, LONG = "".join(LINES[:1]), "".join(LINES)
SAMPLED = Sampling(1.0, top_k=20, seed=5)


def model_of(
    corpus: PreparedCorpus, positions: PositionsConfig | None = None, memory_tokens: int = 32
) -> PermutationLM:
    """A model in float64 whose most likely tokens differ from place to place, without ties."""
    torch.manual_seed(1)
    positions = positions or TransformerXLPositions()
    shape = ModelConfig(
        num_layers=2,
        model_dim=32,
        num_heads=2,
        head_dim=16,
        ffn_dim=64,
        memory_tokens=0 if positions.kind.startswith("absolute") else memory_tokens,
        dropout=0.0,
        positions=positions,
        segment_encodings=True,
        tie_embeddings=False,
    )
    network = TwoStreamTransformer(shape, corpus.tokenizer.vocab_size).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return PermutationLM(network, corpus.tokenizer, SEGMENT)


@pytest.fixture(scope="module")
def exact_lm(text_corpus: PreparedCorpus) -> PermutationLM:
    return model_of(text_corpus)


@pytest.fixture
def worker(exact_lm: PermutationLM) -> Iterator[Worker]:
    worker = Worker(exact_lm, max_lanes=24)
    yield worker
    worker.close()


def filling(prefix: str, suffix: str, tokens: int = 20, **others: object) -> TextRequest:
    return TextRequest(prefix.encode(), suffix.encode(), tokens, **others)  # type: ignore[arg-type]


def continuation(prefix: str, tokens: int = 30, **others: object) -> TextRequest:
    return TextRequest(prefix.encode(), None, tokens, **others)  # type: ignore[arg-type]


def alone(lm: PermutationLM, request: TextRequest) -> list[tuple[str, float, str]]:
    if request.suffix is None:
        found = lm.complete(
            request.prefix,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            num_samples=request.num_samples,
            stop=request.stop,
        )
    else:
        found = lm.infill(
            request.prefix,
            request.suffix,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            num_samples=request.num_samples,
        )
    return [(one.text, one.log_likelihood, one.finish) for one in found]


def of_answer(answer: Answer) -> list[tuple[str, float, str]]:
    completions = [one.completion for one in answer.texts]
    return [(one.text, one.log_likelihood, one.finish) for one in completions]


def assert_same(answer: Answer, expected: list[tuple[str, float, str]]) -> None:
    found = of_answer(answer)
    assert [(text, finish) for text, _, finish in found] == [(text, finish) for text, _, finish in expected]
    assert [score for _, score, _ in found] == pytest.approx(
        [score for _, score, _ in expected], abs=FP64_TOLERANCE
    )


MIXED = [
    filling("def f(x):\n    return ", "\n"),
    continuation("class "),
    filling(LONG[:900], LONG[900:]),
    filling(LONG[:300], LONG[300:], 5, sampling=SAMPLED, num_samples=2),
    continuation(LONG[:700], 90),
    continuation("import ", 60, sampling=SAMPLED, num_samples=3),
    filling("", SHORT, 1),
    continuation(LONG[:40], 7),
    filling(LONG, "", 24),
]
"""Some end early, some go through several segments, some have a text before the segment."""


@pytest.mark.parametrize("request_", MIXED, ids=range(len(MIXED)))
def test_a_request_alone_gets_the_models_answer(
    exact_lm: PermutationLM, worker: Worker, request_: TextRequest
) -> None:
    assert_same(worker.submit(request_).result(60), alone(exact_lm, request_))


def test_requests_that_share_passes_get_the_models_answers(exact_lm: PermutationLM, worker: Worker) -> None:
    expected = [alone(exact_lm, one) for one in MIXED]
    before = worker.num_passes
    futures = [worker.submit(one) for one in MIXED]
    answers = [one.result(60) for one in futures]
    for answer, wanted in zip(answers, expected, strict=True):
        assert_same(answer, wanted)
    num_chosen = sum(one.completion.num_tokens for answer in answers for one in answer.texts)
    assert 0 < worker.num_passes - before < num_chosen / 2


@pytest.mark.parametrize(
    "positions",
    [
        RotaryPositions(),
        ShawPositions(max_distance_tokens=5),
        AbsoluteLearnedPositions(max_positions=SEGMENT),
    ],
    ids=lambda one: one.kind,
)
@pytest.mark.parametrize("memory_tokens", [0, 12])
def test_every_kind_of_model_shares_passes(
    text_corpus: PreparedCorpus, positions: PositionsConfig, memory_tokens: int
) -> None:
    lm = model_of(text_corpus, positions, memory_tokens)
    is_short = positions.kind.startswith("absolute")
    wanted = [MIXED[0], continuation("x", 9), filling("a = ", "\n", 4)] if is_short else MIXED
    worker = Worker(lm)
    try:
        futures = [worker.submit(one) for one in wanted]
        for one, future in zip(wanted, futures, strict=True):
            assert_same(future.result(60), alone(lm, one))
        if is_short:
            with pytest.raises(UserError, match="can place 48"):
                worker.submit(filling(LONG, "")).result(60)
            assert_same(worker.submit(wanted[0]).result(60), alone(lm, wanted[0]))
    finally:
        worker.close()


def test_an_unchanged_beginning_is_not_read_again(exact_lm: PermutationLM, worker: Worker) -> None:
    first = worker.submit(filling(LONG[:900], LONG[900:])).result(60)
    again = worker.submit(filling(LONG[:900] + "x", LONG[900:])).result(60)
    assert first.num_reused == 0
    num_before = len(exact_lm.tokenizer.encode(LONG[:900]))
    assert again.num_reused % SEGMENT == 0
    assert num_before - 2 * SEGMENT < again.num_reused < num_before
    assert_same(again, alone(exact_lm, filling(LONG[:900] + "x", LONG[900:])))
    changed = worker.submit(filling("#" + LONG[1:900], LONG[900:])).result(60)
    assert changed.num_reused == 0
    unwanted = worker.submit(filling(LONG[:900], LONG[900:], reuses_history=False)).result(60)
    assert unwanted.num_reused == 0


def test_the_cache_forgets_what_was_not_used_for_longest(exact_lm: PermutationLM) -> None:
    worker = Worker(exact_lm)
    worker.cache = HistoryCache(max_bytes=1)
    try:
        for _ in range(2):
            answer = worker.submit(filling(LONG[:900], LONG[900:])).result(60)
        assert len(worker.cache._memories) == 1
        assert_same(answer, alone(exact_lm, filling(LONG[:900], LONG[900:])))
    finally:
        worker.close()


def test_a_cancelled_request_frees_its_lanes(worker: Worker) -> None:
    begun = threading.Event()
    endless = worker.submit(continuation("x = ", 100_000), lambda *_: begun.set())
    assert begun.wait(60)
    while worker.num_lanes == 0:  # its first token is chosen before it has lanes
        time.sleep(0.001)
    endless.cancel()
    worker.submit(continuation("y", 2)).result(60)
    assert worker.num_lanes == 0


def test_time_that_is_up_ends_a_text(worker: Worker) -> None:
    started = time.perf_counter()
    answer = worker.submit(continuation("x = ", 1_000_000, time_limit_s=0.1)).result(60)
    assert time.perf_counter() - started < 30
    (text,) = answer.texts
    assert text.completion.finish == "length"
    assert 1 <= text.completion.num_tokens < 1_000_000
    (cut,) = worker.submit(filling("x = ", "\n", time_limit_s=0.0)).result(60).texts
    assert cut.completion.num_tokens <= 1


def test_too_many_requests_are_refused_and_cancelled_ones_make_room(exact_lm: PermutationLM) -> None:
    worker = Worker(exact_lm, max_lanes=1, max_waiting=2)
    try:
        begun = threading.Event()
        endless = worker.submit(continuation("x = ", 100_000), lambda *_: begun.set())
        assert begun.wait(60)
        waiting = [worker.submit(continuation("y", 2)) for _ in range(2)]
        with pytest.raises(BusyError, match="2 requests are waiting"):
            worker.submit(continuation("y", 2))
        waiting[0].cancel()
        last = worker.submit(continuation("z", 2))
        endless.cancel()
        assert waiting[1].result(60).texts
        assert last.result(60).texts
        with pytest.raises(UserError, match="2 texts at once are too many"):
            worker.submit(continuation("x", 2, sampling=SAMPLED, num_samples=2))
    finally:
        worker.close()


def test_bad_requests_do_not_disturb_others(worker: Worker) -> None:
    good = worker.submit(continuation("x = ", 40))
    with pytest.raises(UserError, match="stop at is empty"):
        worker.submit(continuation("x", 2, stop=[b""])).result(60)
    with pytest.raises(UserError, match="does not fit the model's segments"):
        worker.submit(filling("x", "y", 2 * SEGMENT)).result(60)
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda _: 1 // 0).result(60)
    assert good.result(60).texts


def test_a_pass_that_fails_ends_its_requests_alone(
    worker: Worker, exact_lm: PermutationLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(worker._lanes, "advance", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            worker.submit(continuation("x = ", 5)).result(60)
    assert_same(worker.submit(MIXED[0]).result(60), alone(exact_lm, MIXED[0]))


def test_text_and_tokens_arrive_as_they_are_final(exact_lm: PermutationLM, worker: Worker) -> None:
    shown: list[tuple[int, str, int]] = []
    request = continuation("x = ", 12, num_alternatives=2)
    answer = worker.submit(request, lambda *one: shown.append((one[0], one[1], len(one[2])))).result(60)
    (text,) = answer.texts
    assert "".join(one[1] for one in shown) == text.completion.text
    assert sum(one[2] for one in shown) == len(text.tokens) == text.completion.num_tokens
    assert len(shown) > 1
    assert b"".join(one.data for one in text.tokens) == text.completion.data
    for token in text.tokens:
        assert len(token.alternatives) == 2
        assert token.alternatives[0][1] >= max(token.log_probability, token.alternatives[1][1])
    if text.completion.finish == "length":
        total = sum(one.log_probability for one in text.tokens)
        assert total == pytest.approx(text.completion.log_likelihood, abs=FP64_TOLERANCE)
    filled = worker.submit(filling("x = ", "\n", num_alternatives=0), lambda *one: shown.append(one)).result(
        60
    )
    assert shown[-1][1] == filled.texts[0].completion.text


def test_a_stop_text_ends_a_filling_and_cuts_its_tokens(worker: Worker) -> None:
    request = filling("def f(x):\n    return ", "\n")
    whole = worker.submit(request).result(60).texts[0].completion.data
    stop = whole[len(whole) // 2 :][:2]
    stopped = replace(request, stop=[stop], num_alternatives=0)
    (text,) = worker.submit(stopped).result(60).texts
    assert stop not in text.completion.data
    assert text.completion.data != whole
    kept = b"".join(one.data for one in text.tokens)
    assert kept.startswith(text.completion.data)
    assert len(kept) - len(text.completion.data) < len(text.tokens[-1].data) if text.tokens else not kept


def test_a_long_call_serves_others_and_ends_when_nobody_waits(
    worker: Worker, exact_lm: PermutationLM
) -> None:
    served: list[str] = []
    begun = threading.Event()

    def long_call(serve_others: Callable[[], None]) -> None:
        begun.set()
        while True:
            serve_others()
            served.append("more")

    call = worker.call(long_call)
    assert begun.wait(60)
    assert_same(worker.submit(MIXED[0]).result(60), alone(exact_lm, MIXED[0]))
    call.cancel()
    assert worker.call(lambda _: len(served)).result(60) >= 0


def test_greedy_is_the_default() -> None:
    assert TextRequest(b"x", None, 1).sampling == GREEDY


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("others", [{}, {"stop": [b"return", b")"]}, {"time_limit_s": 1000.0}], ids=str)
def test_a_hole_shows_what_is_final_before_its_end(
    exact_lm: PermutationLM, worker: Worker, sampling: Sampling, others: dict[str, Any]
) -> None:
    num_parts = 0
    for number in range(30):
        at = 37 * number
        shown: list[str] = []
        wanted = filling(LONG[:at], LONG[at + 20 :], sampling=sampling, **others)
        answer = worker.submit(wanted, lambda *new, to=shown: to.append(new[1])).result(60)
        if "stop" not in others:
            assert_same(answer, alone(exact_lm, wanted))
        assert "".join(shown) == answer.texts[0].completion.text
        num_parts += len(shown)
    assert num_parts > 35


def test_lanes_that_cannot_win_are_not_written_to_their_end(
    exact_lm: PermutationLM, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [filling(LONG[: 37 * number], LONG[37 * number + 20 :]) for number in range(12)]
    num_passes = []
    for drops in (True, False):
        if not drops:
            monkeypatch.setattr(OpenChoice, "drop", lambda _: set())
        before = worker.num_passes
        for one in wanted:
            assert_same(worker.submit(one).result(60), alone(exact_lm, one))
        num_passes.append(worker.num_passes - before)
    assert num_passes[0] < num_passes[1]


def test_a_request_for_many_texts_takes_turns_with_others(exact_lm: PermutationLM) -> None:
    worker = Worker(exact_lm, max_lanes=1)
    try:
        begun = threading.Event()
        endless = worker.submit(continuation("x = ", 100_000), lambda *_: begun.set())
        assert begun.wait(60)
        ended: list[str] = []
        groups = ["many"] * 4 + ["a", "b"]
        futures = [worker.submit(continuation("y", 2, group=group)) for group in groups]
        for group, future in zip(groups, futures, strict=True):
            future.add_done_callback(lambda _, group=group: ended.append(group))  # type: ignore[misc]
        endless.cancel()
        for future in futures:
            future.result(60)
        assert ended == ["many", "a", "many", "b", "many", "many"]
    finally:
        worker.close()
