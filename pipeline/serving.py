"""`permcode serve`: a registered system behind HTTP, by MLflow's own server."""

import os
import socket
import sys
from pathlib import Path

from cluster.errors import UserError, first_line
from pipeline.mlflow_store import is_server, store_uri
from pipeline.registry import CHAMPION

_PREFIX = "permcode-"


def serve(place: str, task: str | None, host: str, port: int) -> None:
    """Become the server of a task's champion. `place` is an experiment's folder or a tracking URI.

    `task` may be left out where there is one only. Does not return. Raises UserError when there is no such champion.
    """
    _check_port(host, port)
    store = _store_of(place)
    name = _registered_name(store, task)
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store, "MLFLOW_REGISTRY_URI": store}
    command = [
        sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", f"models:/{name}@{CHAMPION}",
        "--env-manager", "local", "--host", host, "--port", str(port),
    ]  # fmt: skip
    # The server starts programs of this environment, which need not be activated.
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )
    print(f"{name}: POST http://{host}:{port}/invocations", file=sys.stderr, flush=True)
    os.execve(sys.executable, command, environment)


def _check_port(host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"nothing can listen on {host}:{port} ({first_line(error)}): give another --port"
        ) from None


def _store_of(place: str) -> str:
    if "://" in place:
        return place
    if not (Path(place) / "mlflow.db").is_file():
        raise UserError(
            f"{place} holds no mlflow.db: give the folder of `permcode finetune --from`, or a tracking URI"
        )
    return store_uri(Path(place), None)


def _registered_name(store: str, task: str | None) -> str:
    import mlflow
    from mlflow.exceptions import MlflowException

    client = mlflow.MlflowClient(store, store)
    try:
        names = [one.name for one in client.search_registered_models() if CHAMPION in one.aliases]
    except MlflowException as error:
        where = "answer" if is_server(store) else "open"
        raise UserError(f"the MLflow store {store} does not {where} ({error}): check it") from error
    known = sorted(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
    if not known:
        raise UserError(f"{store} has no registered system: run `permcode finetune --from ...` first")
    if task is None and len(known) > 1:
        raise UserError(f"say which task to serve with --task: {', '.join(known)}")
    wanted = task or known[0]
    if wanted not in known:
        raise UserError(f"no champion for the task {wanted!r}: there are {', '.join(known)}")
    return _PREFIX + wanted
