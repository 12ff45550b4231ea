"""A server with a tiny model, asked through a real connection."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn

from data_prep.documents import SPECIAL_TOKENS
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig
from pipeline.editor.app import Playground, application
from pipeline.editor.corpus import CorpusSearch
from pipeline.editor.listening import listen
from pipeline.editor.page import Page
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.worker import Worker
from tests.example_corpus import tiny_model, write_corpus

SEGMENT = 48
CODE = (
    "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n"
    * 8
)


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    worker: Worker
    lm: PermutationLM

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer; `body` is sent as it is if it is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, sent, headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def sent(self, path: str, body: Any) -> socket.socket:
        """Send a request and return its connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(text)}\r\n\r\n"
        connection.sendall(head.encode() + text)
        return connection

    def post(self, path: str, body: Any) -> Any:
        """Return the answer to a good request."""
        status, answer = self.ask("POST", path, body)
        assert status == 200, answer
        return answer

    def events(self, path: str, body: Any) -> list[Any]:
        """Return the events of a stream, as JSON where they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            assert response.status == 200
            assert response.getheader("content-type", "").startswith("text/event-stream")
            lines = response.read().decode().split("\n\n")
        finally:
            connection.close()
        assert lines.pop() == ""
        texts = [line.removeprefix("data: ") for line in lines]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]


@pytest.fixture(scope="package")
def lm(tmp_path_factory: pytest.TempPathFactory) -> PermutationLM:
    """A tiny model in float64, whose answers do not depend on rounding; it writes only what a screen can show."""
    torch.set_num_threads(1)
    path: Path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_tokenizer([CODE.encode()] * 3, TokenizerConfig(vocab_size=350)))
    tokenizer = CodeTokenizer.load(path)
    network = tiny_model(tokenizer.vocab_size).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        for token in range(len(SPECIAL_TOKENS), tokenizer.vocab_size):
            text = tokenizer.decode_bytes([token]).decode(errors="ignore")
            if not text.isprintable() or not text.strip():
                network.output_bias_V[token] -= 100.0
    return PermutationLM(network, tokenizer, SEGMENT)


def running(
    lm: PermutationLM, api_key: str | None = None, playground: Playground | None = None, **limits: int
) -> Iterator[Server]:
    """Run a server in a thread."""
    worker = Worker(lm, **limits)
    with listen("127.0.0.1", 0) as listening:
        started = threading.Event()
        names = None if api_key else frozenset({"127.0.0.1", "localhost"})
        app = application(
            worker,
            "tiny",
            api_key=api_key,
            host_names=names,
            on_start=started.set,
            playground=playground,
        )
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert started.wait(60)
        yield Server(listening.getsockname()[1], worker, lm)
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def server(lm: PermutationLM) -> Iterator[Server]:
    yield from running(lm)


CORPUS = {
    "train": {
        "numbers": {"mean.py": "def mean(values):\n    return sum(values) / len(values)\n", "b.py": CODE}
    }
}


@pytest.fixture(scope="package")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Playground:
    """The page, and the search of a small corpus."""
    return Playground(Page(), CorpusSearch(write_corpus(tmp_path_factory.mktemp("corpus"), CORPUS)))
