"""The compiled operators `torch.ops.permcode_attention`, built once per machine.

torch's builder marks a build in progress by a file, and waits without end for the file of a killed process; here every
build has its own folder and a lock that ends with the process.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from cluster.errors import first_line
from cluster.process_group import extensions_folder, find_build_tools

_log = logging.getLogger(__name__)
SOURCES = Path(__file__).parent / "cpp"
_BUILD_PREFIX = ".building-permcode_attention-"
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")
_FLAGS = {"AVX512_BF16": (*_AVX512, "-mavx512bf16"), "AVX512": _AVX512, "AVX2": ("-mavx2", "-mfma")}


@cache
def load_operators() -> str | None:
    """Make `torch.ops.permcode_attention` usable in this process, compiling it (half a minute) the first time.

    On a processor without bfloat16 products PyTorch's own are then made by way of float32: without that they take some
    fifty times as long. Returns None, or in one line why this machine cannot have it.
    """
    try:
        _load(library_path())
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            torch.ops.permcode_attention.multiply_in_float32()
    except (RuntimeError, ImportError, OSError, subprocess.SubprocessError) as error:
        # The compiler's first error is below its command line.
        complaints = (line.strip() for line in str(error).splitlines() if " error: " in line)
        return next(complaints, first_line(error))
    return None


@cache
def try_load_operators() -> bool:
    """Load the operators and return whether that succeeded; a failure is logged once."""
    reason = load_operators()
    if reason is not None:
        _log.warning("attention runs in plain PyTorch, which takes longer: %s", reason)
    return reason is None


def library_path() -> Path:
    """Return the library's path; its name depends on the sources, torch's version and the processor's instructions."""
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or extensions_folder())
    sources = hashlib.sha256(torch.__version__.encode())
    for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        sources.update(path.read_bytes())
    return folder / f"permcode_attention_{_instructions().lower()}_{sources.hexdigest()[:12]}.so"


def _instructions() -> str:
    capability = torch.backends.cpu.get_cpu_capability()
    if capability == "AVX512" and torch.cpu._is_avx512_bf16_supported():
        return "AVX512_BF16"
    return capability


def _load(library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    if not library.is_file():
        with (library.parent / ".permcode_attention.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.is_file():
                _build(library)
                return  # the builder has loaded it
    torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]


def _build(library: Path) -> None:
    from torch.utils import cpp_extension

    find_build_tools()
    _log.warning("compiling the attention for this machine, once (half a minute)")
    for left_by_a_killed_build in library.parent.glob(f"{_BUILD_PREFIX}*"):
        shutil.rmtree(left_by_a_killed_build, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=_BUILD_PREFIX) as folder:
        cpp_extension.load(
            name=library.stem,
            sources=[str(path) for path in sorted(SOURCES.glob("*.cpp"))],
            extra_cflags=["-O3", "-fopenmp", *_FLAGS.get(_instructions(), ())],
            build_directory=folder,
            is_python_module=False,
        )
        os.replace(Path(folder) / library.name, library)
