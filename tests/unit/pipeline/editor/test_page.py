"""The page: its headers, who gets it, and the search of the corpus. What it does is in test_page_in_chromium.py."""

import http.client
import re
import threading
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from pipeline.editor.app import Playground
from pipeline.editor.page import PAGE_NAME, Page, content_security_policy
from pretrain.inference.language_model import PermutationLM
from tests.unit.pipeline.editor.conftest import Server, running

HTML = (files("pipeline") / "templates" / PAGE_NAME).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page_server(lm: PermutationLM, playground: Playground) -> Iterator[Server]:
    yield from running(lm, playground=playground)


@pytest.fixture
def locked_server(lm: PermutationLM, playground: Playground) -> Iterator[Server]:
    yield from running(lm, "a key", playground)


@pytest.fixture
def server_without_corpus(lm: PermutationLM) -> Iterator[Server]:
    yield from running(lm, playground=Playground(Page(), None))


def got(server: Server, path: str, host: str | None = None) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read().decode()
    finally:
        connection.close()


def test_the_page_has_headers_that_keep_others_out(page_server: Server) -> None:
    status, headers, text = got(page_server, "/")
    assert (status, text) == (200, HTML)
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(one.split(" ", 1) for one in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    for kind in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy[kind])
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_the_policy_is_of_the_file_s_own_script_and_style() -> None:
    before = content_security_policy(HTML)
    assert content_security_policy(HTML.replace('"use strict"', '"use strict "')) != before
    assert content_security_policy(HTML.replace("margin: 0", "margin: 1px", 1)) != before
    assert content_security_policy(HTML.replace("<h1>", "<h1>a")) == before


def test_the_page_names_no_other_server_and_inserts_no_html() -> None:
    assert not re.search(r"https?:|src=|@import|url\(|//[a-z]", HTML)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", HTML)
    assert not re.search(r"localStorage|sessionStorage|document\.cookie|indexedDB", HTML)
    # Neither is allowed by the policy, so they would do nothing.
    assert not re.search(r"\sstyle=|\son[a-z]+=\"", HTML)


def test_a_server_of_editors_has_no_page(server: Server) -> None:
    assert got(server, "/")[0] == 404
    assert server.ask("POST", "/v1/corpus", {"text": "x"})[0] == 404


def test_only_this_machines_own_name_gets_the_page(page_server: Server) -> None:
    assert got(page_server, "/", "evil.example")[0] == 403
    assert got(page_server, "/", "localhost")[0] == 200
    assert page_server.ask("POST", "/v1/corpus", {"text": "x"}, {"Host": "evil.example"})[0] == 403


def test_the_page_needs_no_key_and_what_it_asks_does(locked_server: Server) -> None:
    assert got(locked_server, "/")[0] == 200
    assert locked_server.ask("POST", "/v1/corpus", {"text": "mean"})[0] == 401
    headers = {"Authorization": "Bearer a key"}
    assert locked_server.ask("POST", "/v1/corpus", {"text": "mean"}, headers)[0] == 200


def test_the_corpus_is_searched(page_server: Server) -> None:
    found = page_server.post("/v1/corpus", {"text": "sum(values)"})
    (document,) = found.pop("documents")
    assert found == {"object": "corpus", "num_searched": 2, "num_documents": 2, "is_all": True}
    assert document == {
        "split": "train",
        "source": "here",
        "repository": "numbers",
        "path": "mean.py",
        "licence": None,
        "num_places": 1,
        "line": 2,
        "column": 12,
        "text": "    return sum(values) / len(values)",
    }
    assert page_server.post("/v1/corpus", {"text": "nobody wrote this"})["documents"] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "text: Field required"),
        ({"text": ""}, "text: String should have at least 1 character"),
        ({"text": "x" * 1001}, "text: String should have at most 1000 characters"),
        (b'{"text": "\\ud800"}', "text: Input should be a valid string"),
    ],
)
def test_a_bad_search_gets_one_line(page_server: Server, body: Any, message: str) -> None:
    status, answer = page_server.ask("POST", "/v1/corpus", body)
    assert status == 400
    assert answer["error"]["message"].startswith(message)


def test_a_second_search_is_told_to_come_again(page_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Event(), threading.Event()

    def endless(*_: Any, must_stop: Any) -> Any:
        begun.set()
        assert end.wait(60)
        raise AssertionError

    with monkeypatch.context() as changed:
        changed.setattr("pipeline.editor.corpus.find_text", endless)
        first = threading.Thread(target=page_server.ask, args=("POST", "/v1/corpus", {"text": "x"}))
        first.start()
        assert begun.wait(60)
        status, answer = page_server.ask("POST", "/v1/corpus", {"text": "x"})
        end.set()
        first.join(60)
    assert (status, answer["error"]["message"]) == (429, "the corpus is being searched: ask again later")
    assert page_server.post("/v1/corpus", {"text": "mean"})["is_all"]


def test_without_a_corpus_the_search_says_so(server_without_corpus: Server) -> None:
    status, answer = server_without_corpus.ask("POST", "/v1/corpus", {"text": "x"})
    message = "there is no corpus beside the model, so there is nothing to search"
    assert (status, answer["error"]["message"]) == (404, message)
