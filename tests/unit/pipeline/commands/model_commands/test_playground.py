"""`permcode playground`: what it refuses before it listens, and a server from its start to its end."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.unit.pipeline.commands.model_commands.command import assert_bad_input, permcode


def test_beyond_loopback_a_key_is_demanded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERMCODE_API_KEY", raising=False)
    result = permcode("playground", model, "--host", "0.0.0.0")
    assert_bad_input(result, "--host 0.0.0.0 is reached from other machines: set PERMCODE_API_KEY")


def test_what_cannot_be_served_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERMCODE_API_KEY", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_bad_input(permcode("playground", model, "--port", port), f"cannot listen on 127.0.0.1:{port}")
    assert_bad_input(permcode("playground", tmp_path, "--port", port), "holds no model")
    assert_bad_input(permcode("playground", tmp_path / "none", "--port", port), "is no folder")


def test_the_page_is_there_until_it_is_interrupted(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "PERMCODE_API_KEY"}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "pipeline.cli", "playground", str(model), "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        folder = model / "pretrain-0123456789ab" / "model"
        assert server.stderr.readline() == (
            f"permcode: warning: there is no prepared corpus beside {folder}: the page cannot search it\n"
        )
        assert server.stderr.readline() == f"{model.name}: http://127.0.0.1:{port}/\n"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            assert answer.headers["Content-Security-Policy"].startswith(
                "default-src 'none'; script-src 'sha256-"
            )
            assert answer.read().startswith(b"<!doctype html>")
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
        assert server.stderr.read().count("\n") == 1
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
