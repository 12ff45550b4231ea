"""`permcode serve RUN --editor`: what it refuses before it listens, and a server from its start to its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pretrain.inference.language_model import PermutationLM
from tests.unit.pipeline.commands.model_commands.command import CODE, assert_bad_input, permcode


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "some.name"])
def test_beyond_loopback_a_key_is_demanded(model: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (None, ""):
        monkeypatch.delenv("PERMCODE_API_KEY", raising=False)
        if key is not None:
            monkeypatch.setenv("PERMCODE_API_KEY", key)
        result = permcode("serve", model, "--editor", "--host", host)
        assert_bad_input(result, f"--host {host} is reached from other machines: set PERMCODE_API_KEY")


def test_what_cannot_be_served_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERMCODE_API_KEY", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = permcode("serve", model, "--editor", "--port", port)
        assert_bad_input(result, f"cannot listen on 127.0.0.1:{port}")
    assert_bad_input(permcode("serve", tmp_path, "--editor", "--port", port), "holds no model")
    monkeypatch.setenv("PERMCODE_API_KEY", "key")
    assert_bad_input(permcode("serve", model, "--editor", "--host", "no such host"), "cannot listen on")


def test_a_server_answers_until_it_is_interrupted(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PERMCODE_API_KEY": "a key", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pipeline.cli", "serve", str(model), "--editor", "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert line == (
            f"{model.name}: http://127.0.0.1:{port}/infill and http://127.0.0.1:{port}/v1/completions\n"
        )
        body = {"input_prefix": CODE[:40], "input_suffix": CODE[40:], "n_predict": 6}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/infill", json.dumps(body).encode(), {"Authorization": "Bearer a key"}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            content = json.load(answer)["content"]
        expected = PermutationLM.from_run(model).infill(CODE[:40], CODE[40:], max_new_tokens=6)[0].text
        assert content == expected
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
        assert server.stderr.read().count("\n") == 1
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
