"""What a training process needs before DeepSpeed: environment, compiled extensions, redirected output."""

import fcntl
import importlib
import importlib.metadata
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cluster.errors import UserError, first_line
from cluster.storage import make_private_folder, sha256_bytes

Backend = Literal["nccl", "gloo"]
_SHARED_MEMORY = Path("/dev/shm")


def local_backend() -> Backend:
    """Return the collectives' backend for processes of this machine only: nccl if it has GPUs, else gloo."""
    import torch

    return "nccl" if torch.cuda.is_available() else "gloo"


def configure_environment(backend: Backend | None = None) -> None:
    """Set the variables that DeepSpeed and torch read at import; values that the user has set stay.

    With the `backend` chosen for the run, DeepSpeed's accelerator follows it, whatever this machine has. With None, it
    is chosen for this machine.
    """
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if backend is not None:
        os.environ["DS_ACCELERATOR"] = "cpu" if backend == "gloo" else "cuda"
    elif local_backend() == "gloo":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_SIZE", str(local_size))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // local_size)))
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(extensions_folder()))
    find_build_tools()


def find_build_tools() -> None:
    """Put the folder of this python first on PATH: ninja is in our environment, which need not be activated.

    First, because a ninja of another version would recompile what this one has compiled.
    """
    beside_python = str(Path(sys.executable).parent)
    others = [
        folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != beside_python
    ]
    os.environ["PATH"] = os.pathsep.join([beside_python, *others])


def join_process_group(backend: Backend) -> None:
    """Join the process group that the environment describes, with DeepSpeed ready to use it.

    On CPU, DeepSpeed's workers of one machine share buffers of 70 MB each in /dev/shm and never remove them. Here the
    files are unlinked once every worker has mapped them, so that the memory is freed with the processes, however they
    end.
    """
    import_deepspeed()
    load_cpu_extension()
    import deepspeed
    import torch.distributed as dist

    deepspeed.init_distributed(dist_backend=backend)
    dist.barrier()
    group = f"{os.getuid()}_{os.environ['MASTER_ADDR']}_{os.environ['MASTER_PORT']}"
    (_SHARED_MEMORY / f"deepspeed_allreduce_buffer_{group}_{dist.get_rank()}").unlink(missing_ok=True)


def import_deepspeed() -> None:
    """Import DeepSpeed without MLflow, which only its autotuner would use.

    MLflow would take 1.3 of 1.7 s of CPU time and 116 of 138 MB in every worker. It can be imported afterwards.
    """
    if "mlflow" in sys.modules:
        importlib.import_module("deepspeed")
        return
    sys.modules["mlflow"] = None  # type: ignore[assignment]  # None makes its import fail
    try:
        importlib.import_module("deepspeed")
    finally:
        del sys.modules["mlflow"]


def load_cpu_extension() -> None:
    """Load DeepSpeed's shared-memory collectives, compiling them (about 90 s) the first time.

    Call after `configure_environment` and before `deepspeed.init_distributed`, which then finds them loaded. A lock
    admits one process of the machine at a time, so a lock file left by a killed torch builder can be removed;
    otherwise every later process would wait for it for ever. Does nothing on a GPU. UserError when the compiler fails.
    """
    if os.environ.get("DS_ACCELERATOR") != "cpu":
        return
    folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".permcode.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        builder = ShareMemCommBuilder()
        (folder / builder.NAME / "lock").unlink(missing_ok=True)
        try:
            builder.load(verbose=False)
        except (RuntimeError, ImportError, OSError) as error:
            raise UserError(
                f"DeepSpeed's CPU extension does not compile ({first_line(error)}): install a C++ compiler "
                "(g++) and run `permcode doctor --build`"
            ) from error


def is_extension_built() -> bool:
    """Return whether `load_cpu_extension` will find the compiled module."""
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or extensions_folder())
    return (folder / "deepspeed_shm_comm" / "deepspeed_shm_comm.so").is_file()


def extensions_folder() -> Path:
    """Return the folder of compiled extensions, one per user, virtual environment and versions of torch and DeepSpeed.

    It is in the user's cache, or else in a private temporary folder, and its parents are created. UserError when
    neither can be used.
    """
    torch_version, deepspeed_version = (importlib.metadata.version(name) for name in ("torch", "deepspeed"))
    python_version = f"{sys.version_info.major}{sys.version_info.minor}"
    # The compiler's options contain the environment's paths. In a common folder every environment would compile
    # DeepSpeed's extension again whenever another one has been used.
    environment = sha256_bytes(sys.prefix.encode())[:8]
    name = f"py{python_version}-torch{torch_version}-deepspeed{deepspeed_version}-{environment}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "permcode" / "torch_extensions" / name
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        pass
    own = Path(tempfile.gettempdir()) / f"permcode-{os.getuid()}"
    if not make_private_folder(own):
        # Compiled code is loaded from there, so no other user may be able to write to it.
        raise UserError(f"{own} belongs to another user: set XDG_CACHE_HOME to a folder of your own")
    return own / "torch_extensions" / name


@contextmanager
def redirect_output(path: Path) -> Iterator[None]:
    """Append all that this process and its libraries print, warn or log to `path` while the block runs.

    File descriptors 1 and 2 are redirected, which includes the output of C++ libraries and child processes, and
    restored at the end of the block.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = [os.dup(1), os.dup(2)]
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    _redirect([target, target])
    os.close(target)
    root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            logging.captureWarnings(True)
            yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()
        _redirect(saved)
        for descriptor in saved:
            os.close(descriptor)


def _redirect(descriptors: list[int]) -> None:
    for stream, number, descriptor in zip((sys.stdout, sys.stderr), (1, 2), descriptors, strict=True):
        stream.flush()
        os.dup2(descriptor, number)
