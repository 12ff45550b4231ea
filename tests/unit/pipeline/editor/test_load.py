"""The load test asks what it says, and counts what goes wrong."""

import socket

import pytest

from benchmarks.editor_load import Timings, type_in
from cluster.errors import UserError
from pipeline.editor.listening import listen
from pretrain.inference.shared_writing import TextRequest
from tests.unit.pipeline.editor.conftest import CODE, Server


def test_every_character_that_is_typed_asks_for_a_hole(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[TextRequest] = []
    submit = server.worker.submit
    monkeypatch.setattr(
        server.worker, "submit", lambda request, *more: (asked.append(request), submit(request, *more))[1]
    )
    timings = type_in(server.port, CODE, 3, 4)
    assert (len(timings.answer_s), len(timings.num_tokens), list(timings.errors)) == (3, 3, [])
    assert [len(one.prefix) - len(asked[0].prefix) for one in asked] == [0, 1, 2]
    assert {one.suffix for one in asked} == {asked[0].suffix}
    assert CODE.encode().startswith(asked[2].prefix)
    assert all(one.max_new_tokens == 4 and one.prefix for one in asked)


def test_errors_are_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no")

    monkeypatch.setattr(server.worker, "submit", refuse)
    timings = type_in(server.port, CODE, 2, 4)
    assert (len(timings.answer_s), list(timings.errors)) == (0, ["no"] * 2)
    assert timings.line("nobody").startswith("nobody: 2 errors")


def test_percentiles_are_of_all_answers() -> None:
    timings = Timings([number / 1000 for number in range(101)], [4] * 101, [])
    assert timings.line("all") == "all: 101 answers, p50 50 ms, p95 95 ms, 4.0 tokens each, 0 errors"


def test_the_end_of_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
