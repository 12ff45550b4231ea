"""Listening: where, for whom, and until when."""

import ipaddress
import os
import socket
import sys

import uvicorn

from cluster.errors import UserError
from pipeline.editor.app import Playground, application
from pipeline.editor.listening import url_host
from pretrain.inference.worker import Worker

API_KEY_VARIABLE = "PERMCODE_API_KEY"
_SHUTDOWN_S = 2


def api_key_for(host: str) -> str | None:
    """Return the key that requests must give, from the environment.

    Raises UserError when there is none and the server would listen beyond loopback.
    """
    key = os.environ.get(API_KEY_VARIABLE) or None
    if key is None and not is_loopback(host):
        raise UserError(
            f"--host {host} is reached from other machines: set {API_KEY_VARIABLE} to a key that requests must give"
        )
    return key


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve_editor(
    worker: Worker,
    model_name: str,
    listening: socket.socket,
    host: str,
    api_key: str | None,
    playground: Playground | None = None,
) -> None:
    """Answer requests until the process gets SIGINT or SIGTERM."""
    name = url_host(host)
    address = f"http://{name}:{listening.getsockname()[1]}"
    host_names = None
    if api_key is None:
        host_names = frozenset({"localhost", "127.0.0.1", "[::1]", name})

    def announce() -> None:
        answers = f"{address}/infill and {address}/v1/completions" if playground is None else f"{address}/"
        print(f"{model_name}: {answers}", file=sys.stderr, flush=True)

    app = application(
        worker,
        model_name,
        api_key=api_key,
        host_names=host_names,
        on_start=announce,
        playground=playground,
    )
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=_SHUTDOWN_S, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listening])
