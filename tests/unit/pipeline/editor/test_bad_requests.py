"""Bad requests get one line and a status; clients that go away free their lanes; the server goes on."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pipeline.editor import bodies
from pipeline.editor.bodies import MAX_BODY_BYTES
from pretrain.inference.language_model import PermutationLM
from tests.unit.pipeline.editor.conftest import CODE, Server, running

GOOD = {"prompt": CODE[:50], "max_tokens": 4, "temperature": 0}
ENDLESS = {"prompt": "x = ", "max_tokens": 4096, "temperature": 0}
BAD: list[tuple[str, Any, int, str]] = [
    ("/infill", b"", 400, "the body is no JSON"),
    ("/infill", b"{", 400, "the body is no JSON"),
    ("/infill", b"\xff\xfe", 400, "the body is no JSON"),
    ("/infill", b"[" * 100_000, 400, "the body is no JSON"),
    ("/infill", b"9" * 10_000, 400, "the body is no JSON"),
    ("/infill", b"[1]", 400, "the body is a JSON list, not an object"),
    ("/infill", {"input_prefix": 5}, 400, "input_prefix: Input should be a valid string"),
    ("/infill", {"n_predict": "many"}, 400, "n_predict: Input should be a valid integer"),
    ("/infill", {"n_predict": True}, 400, "n_predict: Input should be a valid integer"),
    ("/infill", {"stop": [1]}, 400, "stop.0: Input should be a valid string"),
    ("/infill", {"stop": ["x"] * 65}, 400, "stop: Value should have at most 64 items"),
    ("/infill", {"stop": ["x" * 1001]}, 400, "stop.0: String should have at most 1000 characters"),
    ("/infill", b"null", 400, "the body is null, not an object"),
    ("/v1/holes", {"parts": ["x", "y"], "max_tokens": 10**400}, 400, "a hole of 1000000"),
    ("/v1/completions", {"prompt": "x", "n": 10**400}, 400, "1000000"),
    ("/infill", {"input_extra": {}}, 400, "input_extra: Input should be a valid list"),
    ("/infill", b'{"input_extra": [{"text": "\\udfff"}]}', 400, "input_extra: character 0 is half"),
    ("/infill", {"response_fields": "content"}, 400, "response_fields: Input should be a valid list"),
    ("/infill", b'{"input_prefix": "\\ud800"}', 400, "input_prefix: character 0 is half of a surrogate pair"),
    ("/infill", {"temperature": 1, "top_p": 2}, 400, "top-p must be above 0 and at most 1, got 2"),
    ("/v1/completions", {}, 400, "prompt: give a text"),
    ("/v1/completions", {"prompt": ""}, 400, "the prompt is empty"),
    ("/v1/completions", {"prompt": []}, 400, "prompt: give a text"),
    ("/v1/completions", {"prompt": [[]]}, 400, "the prompt is empty"),
    (
        "/v1/completions",
        {"prompt": {"a": 1}},
        400,
        "prompt: give a text or a list of token ids, got a JSON dict",
    ),
    (
        "/v1/completions",
        {"prompt": [1.0]},
        400,
        "prompt.0: give a text or a list of token ids, got a JSON float",
    ),
    ("/v1/completions", {"prompt": [1, None]}, 400, "prompt: a list has token ids and texts, got null"),
    (
        "/v1/completions",
        {"prompt": [9, True]},
        400,
        "prompt: a list has token ids and texts, got a JSON bool",
    ),
    (
        "/v1/completions",
        {"prompt": [[9], [[9]]]},
        400,
        "prompt.1: a list has token ids and texts, got a JSON list",
    ),
    ("/v1/completions", {"prompt": [9, -1]}, 400, "prompt: the model has tokens 0 to "),
    ("/v1/completions", {"prompt": [["a", 10**6]]}, 400, "prompt.0: the model has tokens 0 to "),
    ("/v1/completions", {"prompt": [10**400]}, 400, "prompt: the model has tokens 0 to "),
    ("/v1/completions", {"prompt": [0]}, 400, "the prompt is empty"),
    (
        "/v1/completions",
        b'{"prompt": [9, "\\ud800"]}',
        400,
        "prompt: character 0 is half of a surrogate pair",
    ),
    ("/v1/completions", {"prompt": ["x"] * 65}, 400, "prompt: 65 prompts are too many, give at most 64"),
    ("/infill", {"prompt": {}}, 400, "prompt: give a text or a list of token ids, got a JSON dict"),
    ("/infill", {"prompt": 5}, 400, "prompt: give a text or a list of token ids, got a JSON int"),
    ("/infill", {"prompt": [10**6]}, 400, "prompt: the model has tokens 0 to "),
    ("/v1/completions", {"prompt": "x", "max_tokens": -1}, 400, "max_tokens: -1 is below 0"),
    ("/v1/completions", {"prompt": "x", "n": 0}, 400, "n: Input should be greater than or equal to 1"),
    ("/v1/completions", {"prompt": "x", "n": 10**9}, 400, "1000000000 texts at once are too many"),
    ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, "temperature must be 0"),
    ("/v1/completions", b'{"prompt": "x", "temperature": NaN}', 400, "temperature must be 0"),
    (
        "/v1/completions",
        {"prompt": "x", "logprobs": 21},
        400,
        "logprobs: Input should be less than or equal to 20",
    ),
    ("/v1/completions", {"prompt": "", "stream": True}, 400, "the prompt is empty"),
    ("/v1/completions", {"segments": 3}, 400, "segments: "),
    ("/v1/completions", {"segments": {}}, 400, "segments.prefix: Field required"),
    ("/v1/holes", {"parts": ["x"]}, 400, "parts: List should have at least 2 items"),
    ("/v1/holes", {"parts": ["x", 3]}, 400, "parts.1: Input should be a valid string"),
    ("/v1/holes", {"parts": ["x", "y"], "lengths": [0]}, 400, "lengths.0"),
    ("/v1/holes", {"parts": ["x", "y"], "lengths": [1, 1]}, 400, "there are 1 holes and 2 lengths"),
    ("/v1/holes", {"parts": ["x", "y"], "lengths": [100]}, 400, "a hole of 100 tokens does not fit"),
    ("/v1/holes", {"parts": ["x", "y"], "order": [1]}, 400, "the order of 1 holes names each"),
    ("/v1/holes", {"parts": ["x", "y"], "order": "any"}, 400, "order"),
    ("/v1/holes", {"parts": ["x" * (1 << 20), "y"]}, 413, "parts: longer than 1 MiB together"),
    ("/v1/scan", {}, 400, "text: Field required"),
    ("/v1/scan", {"text": ""}, 400, "the text is empty"),
    ("/v1/scan", {"text": "x", "top": 21}, 400, "top: Input should be less than or equal to 20"),
    ("/v1/scan", {"text": "x" * (1 << 17)}, 413, "text: longer than 64 KiB"),
    (
        "/v1/completions",
        {"prompt": "x" * (1 << 17), "echo": True, "logprobs": 1, "max_tokens": 1},
        413,
        "prompt: longer than 64 KiB",
    ),
    ("/v1/chat/completions", {}, 404, "POST /v1/chat/completions: Not Found"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), BAD, ids=range(len(BAD)))
def test_bad_bodies_get_one_line(server: Server, path: str, body: Any, status: int, message: str) -> None:
    found, answer = server.ask("POST", path, body)
    assert found == status
    text = answer["error"]["message"]
    assert text.startswith(message)
    assert "\n" not in text
    assert len(text) < 400
    assert len(server.post("/v1/completions", GOOD)["choices"]) == 1


def test_unknown_fields_are_ignored(server: Server) -> None:
    strange = {
        "samplers": ["infill"],
        "n_indent": 4,
        "id_slot": 0,
        "mirostat": {"a": [1]},
        "t_max_prompt_ms": 1,
    }
    body = {"input_prefix": "x = ", "input_suffix": "\n", "n_predict": 5}
    known = server.post("/infill", body)["content"]
    assert server.post("/infill", {**body, **strange})["content"] == known
    assert server.post("/infill", {**body, "stop": "", "input_extra": None})["content"] == known


def test_an_internal_error_has_one_line_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(server.worker, "submit", lambda *_: 1 / 0)
        status, answer = server.ask("POST", "/v1/completions", GOOD)
    assert (status, answer["error"]["message"]) == (500, "failed: ZeroDivisionError")
    assert server.post("/v1/completions", GOOD)["choices"]


def test_other_methods_are_refused(server: Server) -> None:
    assert server.ask("GET", "/infill")[0] == 405


def _kind_of_client(expects: bool) -> bytes:
    return b"Expect: 100-continue\r\n" if expects else b""


@pytest.mark.parametrize("expects", [True, False])
def test_a_hundred_megabytes_are_refused_without_being_kept(server: Server, expects: bool) -> None:
    num_bytes = 100 << 20
    head = b"POST /infill HTTP/1.1\r\nHost: 127.0.0.1\r\n" + _kind_of_client(expects)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % num_bytes)
        if not expects:
            for _ in range(100):
                connection.sendall(b" " * (1 << 20))
        answer = _all_of(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 8 MiB" in answer
    assert MAX_BODY_BYTES == 8 << 20
    assert server.post("/v1/completions", GOOD)["choices"]


def test_an_upload_that_stalls_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_CHUNK_S", 0.1)
    head = b"POST /infill HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head + b'5\r\n{"a":\r\n')
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"nothing more of the body came for 0.1 s" in answer
    assert server.post("/v1/completions", GOOD)["choices"]


def _all_of(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(1 << 16):
        found += part
        if b"\r\n\r\n" in found and found.endswith(b"}"):
            break
    return found


def _sent(server: Server, body: dict[str, Any]) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    text = json.dumps(body).encode()
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(text) + text
    )
    return connection


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_lanes(server: Server, stream: bool) -> None:
    connection = _sent(server, {**ENDLESS, "stream": stream})
    _until(lambda: server.worker.num_lanes == 1)
    if stream:
        assert connection.recv(100)
    connection.close()
    _until(lambda: server.worker.num_lanes == 0)


@pytest.fixture
def small_server(lm: PermutationLM) -> Iterator[Server]:
    yield from running(lm, max_lanes=1, max_waiting=1)


def test_a_full_queue_is_refused(small_server: Server) -> None:
    first = _sent(small_server, ENDLESS)
    _until(lambda: small_server.worker.num_lanes == 1)
    second = _sent(small_server, ENDLESS)
    _until(lambda: small_server.worker.num_waiting == 1)
    status, answer = small_server.ask("POST", "/v1/completions", GOOD)
    assert status == 429
    assert answer["error"]["message"] == "1 requests are waiting already: ask again later"
    second.close()
    first.close()
    _until(lambda: small_server.worker.num_lanes == 0)
    assert small_server.post("/v1/completions", GOOD)["choices"]


def test_two_hundred_requests_of_which_half_are_cancelled(server: Server) -> None:
    expected = server.post("/v1/completions", {**GOOD, "max_tokens": 30})["choices"]

    def ask(number: int) -> Any:
        if number % 2:
            _sent(server, ENDLESS).close()
            return None
        return server.post("/v1/completions", {**GOOD, "max_tokens": 30})["choices"]

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(ask, range(200)))
    assert [one for one in answers if one is not None] == [expected] * 100
    _until(lambda: server.worker.num_lanes == 0)


@pytest.fixture
def locked_server(lm: PermutationLM) -> Iterator[Server]:
    yield from running(lm, api_key="secret")


def test_a_key_is_demanded_where_there_is_one(locked_server: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        status, answer = locked_server.ask("POST", "/v1/completions", GOOD, headers)
        assert status == 401
        assert answer["error"]["message"].startswith("the API key is missing or wrong")
    assert locked_server.ask("GET", "/props")[0] == 401
    assert locked_server.ask("GET", "/health")[0] == 200
    assert locked_server.ask("POST", "/v1/completions", GOOD, {"Authorization": "Bearer secret"})[0] == 200


def test_only_this_machines_own_name_is_answered_without_a_key(server: Server) -> None:
    for name in ("evil.example", "evil.example:80", "[::2]:80", "localhost.evil.example"):
        assert server.ask("GET", "/v1/models", headers={"Host": name})[0] == 403
    for name in ("localhost", "LOCALHOST:5", "127.0.0.1:8012"):
        assert server.ask("GET", "/v1/models", headers={"Host": name})[0] == 200
