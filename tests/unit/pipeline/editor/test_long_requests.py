"""Requests that take the model long do not hold up others, and end when nobody waits for them."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch import Tensor

from pretrain.inference.language_model import PermutationLM
from pretrain.inference.session import DecodingSession
from pretrain.model.transformer import TwoStreamTransformer
from tests.unit.pipeline.editor.conftest import CODE, Server, running

PASS_S = 0.03
"""How long a pass takes here."""
WAIT = 12
"""How many passes may be made while a short request waits, its own ones among them."""
SHORT = {"prompt": CODE[:20], "max_tokens": 2, "temperature": 0}
HOLES = {"parts": ["a"] * 13}
SCORED = {"prompt": CODE * 6, "max_tokens": 0, "echo": True, "logprobs": 1}
SCANNED = {"text": CODE, "top": 5}
LONG: list[tuple[str, dict[str, Any]]] = [
    ("/v1/holes", HOLES),
    ("/v1/completions", SCORED),
    ("/v1/scan", SCANNED),
]


class Passes:
    """The passes so far, each made slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num = 0
        self._patch(monkeypatch, DecodingSession, "_run")
        self._patch(monkeypatch, TwoStreamTransformer, "forward")

    def _patch(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        run = getattr(owner, name)

        def slow(*arguments: Any, **others: Any) -> Tensor:
            self.num += 1
            time.sleep(PASS_S)
            return run(*arguments, **others)  # type: ignore[no-any-return]

        monkeypatch.setattr(owner, name, slow)


@pytest.fixture
def own_server(lm: PermutationLM) -> Iterator[Server]:
    yield from running(lm)


@pytest.mark.parametrize(("path", "body"), LONG, ids=[path for path, _ in LONG])
def test_others_are_served_while_a_long_request_runs(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    expected, short = own_server.post(path, body), own_server.post("/v1/completions", SHORT)["choices"]
    passes = Passes(monkeypatch)
    own_server.post(path, body)
    assert passes.num > 2 * WAIT
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(own_server.post, path, body)
        longest = 0
        while not long.done():
            begun = passes.num
            assert own_server.post("/v1/completions", SHORT)["choices"] == short
            longest = max(longest, passes.num - begun)
        answer = long.result()
    assert 0 < longest <= WAIT
    ignored = ("id", "created")
    assert {**answer, **dict.fromkeys(ignored)} == {**expected, **dict.fromkeys(ignored)}


@pytest.mark.parametrize(("path", "body"), LONG, ids=[path for path, _ in LONG])
def test_a_long_request_ends_when_its_client_goes_away(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    own_server.post(path, body)
    passes = Passes(monkeypatch)
    own_server.post(path, body)
    num_whole, begun = passes.num, passes.num
    connection = own_server.sent(path, body)
    while passes.num <= begun:
        time.sleep(0.001)
    connection.close()
    ended = threading.Event()
    own_server.worker.call(lambda *_: ended.set())
    assert ended.wait(60)
    assert passes.num - begun < num_whole / 2
