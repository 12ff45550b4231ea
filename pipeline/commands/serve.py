"""`permcode serve`: serves a registered system with MLflow's server, or a model to editors, over HTTP."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.options import TaskOfRun
from pipeline.editor.listening import listen, url_host
from pipeline.folder.layout import RunFiles
from pipeline.folder.task_folder import finished_tasks, task_folder, task_kind
from pipeline.mlflow.store import is_server, store_uri

if TYPE_CHECKING:
    from pipeline.editor.app import Playground
    from pretrain.inference.folders import ModelFiles

MLFLOW_PORT = 5001
EDITOR_PORT = 8012
"""The port at which llama.vim and llama.vscode ask by default."""
_PREFIX = "permcode-"
_ANNOUNCER = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
import os, sys, time
from urllib.request import ProxyHandler, build_opener
address, name = sys.argv[1:]
server, opener = os.getppid(), build_opener(ProxyHandler({}))
while os.getppid() == server:
    try:
        opener.open(address + "/ping", timeout=5).close()
    except OSError:
        time.sleep(0.2)
        continue
    print(f"{name}: POST {address}/invocations", file=sys.stderr, flush=True)
    break
"""


def become_server(place: str, task: str | None, host: str, port: int) -> None:
    """Replace this process by the server of a task's champion.

    `place` is the folder of an experiment, a run or a run's task, or a tracking URI. `task` is a kind, or the name of a
    task in a folder; it may be None if there is only one. The address is printed when the server answers. Raises
    UserError if there is no such champion.
    """
    from pipeline.mlflow.registry import CHAMPION

    listen(host, port).close()
    store, task = (place, task) if "://" in place else _store_and_kind(Path(place), task)
    name = _registered_name(store, task)
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store, "MLFLOW_REGISTRY_URI": store}
    command = [
        sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", f"models:/{name}@{CHAMPION}",
        "--env-manager", "local", "--host", host, "--port", str(port),
    ]  # fmt: skip
    environment["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = (
        "false"  # it would show the copying of files on this machine
    )
    # The server starts programs of this virtual environment, which may not be activated.
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )
    print(f"{name}: starting, which takes some seconds", file=sys.stderr, flush=True)
    announce(f"http://{url_host(host)}:{port}", name)
    os.execve(sys.executable, command, environment)


def serve_model(
    run: Path,
    task: str | None,
    host: str,
    port: int,
    playground_of: "Callable[[ModelFiles], Playground] | None" = None,
) -> None:
    """Answer editors with the model of a run's folder until the process gets SIGINT or SIGTERM.

    `playground_of` makes what the server has beyond that, of the model's files. Raises UserError when there is no
    model, the address cannot be bound, or others than this machine could ask without a key.
    """
    from pipeline.editor.server import api_key_for, serve_editor

    api_key = api_key_for(host)
    folder = task_folder(run, task)
    with listen(host, port) as listening:
        from pretrain.inference.folders import find_model_folder
        from pretrain.inference.language_model import PermutationLM
        from pretrain.inference.worker import Worker

        files = find_model_folder(folder, warn)
        playground = None if playground_of is None else playground_of(files)
        model = PermutationLM.from_files(files)
        name = folder.absolute().name
        worker = Worker(model)
        worker.warm_up()
        serve_editor(worker, name, listening, host, api_key, playground)


def announce(address: str, name: str) -> "subprocess.Popen[bytes]":
    """Start a process that prints the address for requests once the server answers; it ends with this process.

    This process becomes the server, which does not print its address.
    """
    return subprocess.Popen([sys.executable, "-S", "-c", _ANNOUNCER, address, name], stdin=subprocess.DEVNULL)


def _store_and_kind(place: Path, task: str | None) -> tuple[str, str | None]:
    """Return the store and the kind of the task for the folder of a run, an experiment or a task."""
    folder = next(
        (one for one in (place, place.absolute().parent) if (one / RunFiles.MLFLOW_STORE).is_file()), None
    )
    if folder is None:
        raise UserError(
            f"{place} holds no {RunFiles.MLFLOW_STORE}: give the folder of a run or of `permcode finetune --from`, or "
            "a tracking URI"
        )
    store = store_uri(folder, None)
    if task is not None:
        # The folder of a store may hold no task.
        return store, task_kind(task_folder(place, task)) if finished_tasks(place) else task
    return store, None if folder == place else task_kind(place)


def _registered_name(store: str, task: str | None) -> str:
    import mlflow
    from mlflow.exceptions import MlflowException

    from pipeline.mlflow.registry import CHAMPION

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
        raise UserError(f"give the task to serve with --task, one of {', '.join(known)}")
    wanted = task or known[0]
    if wanted not in known:
        raise UserError(f"no champion for the task {wanted!r}: there are {', '.join(known)}")
    return _PREFIX + wanted


def serve(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER_OR_URI",
            help="The folder of an experiment, a run or a run's task, or an MLflow tracking URI; with --editor a RUN.",
            show_default=False,
        ),
    ],
    task: TaskOfRun = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="The port: by default 5001, with --editor 8012."),
    ] = None,
    editor: Annotated[
        bool, typer.Option("--editor", help="Answer editors that ask as they ask llama.cpp, OpenAI or Tabby.")
    ] = False,
) -> None:
    """Answer HTTP requests with a task's best system, by `mlflow models serve`, or with a model those of editors.

    \b
    permcode serve runs/demo --editor
    permcode serve runs/translate --port 5001
    permcode serve runs/demo --task search
    curl localhost:5001/invocations -H 'Content-Type: application/json' \\
      -d '{"dataframe_records": [{"text": "public int size(){return n;}"}]}'
    """
    with exit_codes(None):
        if editor:
            serve_model(Path(place), task, host, port or EDITOR_PORT)
        else:
            become_server(place, task, host, port or MLFLOW_PORT)
