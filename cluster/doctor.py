"""Preflight checks of what a run needs from this machine, each with the fix."""

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cluster.jobs import PACKAGES
from cluster.process_group import configure_environment, extensions_folder, is_extension_built
from cluster.reporter import Reporter

Level = Literal["ok", "warning", "error"]
GIB = 1 << 30
MIB = 1 << 20
DISTRIBUTION = "permcode"

_MIN_PYTHON = (3, 11)
_MIN_MEMORY_BYTES = 7 * GIB
"""Machines sold with 8 GB report less: at most 7.45 GiB if the GB are decimal."""
_MIN_DISK_BYTES = 1 * GIB
_GOOD_DISK_BYTES = 5 * GIB
_MIN_SHM_BYTES = 256 * MIB
_BUILD_TIMEOUT_S = 900
_BFLOAT16_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Check:
    """The result of one check; `fix` says what to do, and is empty when there is nothing to do."""

    name: str
    level: Level
    finding: str
    fix: str = ""


def run_checks(out: Path | None, build: bool = False) -> list[Check]:
    """Run all checks and return them in the order in which problems are best fixed.

    `out` is where a run would write (None: the current folder). `build` compiles DeepSpeed's CPU extension now if that
    has not been done; otherwise the first pretraining does it.
    """
    return [
        _python(),
        _packages(),
        _foreign_packages(),
        _compiler(),
        _extension(build),
        _memory(),
        _disk(out or Path.cwd()),
        _shared_memory(),
        _ports(),
        _gpus(),
        _bfloat16(),
    ]


def render(checks: Sequence[Check], reporter: Reporter) -> int:
    """Print a line per check and return the exit code: 1 if any is an error, else 0."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" -> {check.fix}" if check.fix else ""
        reporter.line(f"{check.level:<8}{check.name:<{width}}  {check.finding}{fix}")
    return int(any(check.level == "error" for check in checks))


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _MIN_PYTHON:
        return Check(
            "python", "error", version, "install Python 3.11 or newer and create the environment again"
        )
    return Check("python", "ok", version)


def _packages() -> Check:
    """Compare installed versions with the ranges that this distribution declares."""
    from packaging.requirements import Requirement

    try:
        declared = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return Check(
            "packages",
            "warning",
            "permcode is not installed: its version ranges are unknown",
            "pip install -e .",
        )
    requirements = [Requirement(text) for text in declared]
    wanted = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    wrong = []
    for requirement in wanted:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if wrong:
        return Check("packages", "error", "; ".join(wrong), "pip install -c constraints.txt -e .")
    shown = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "deepspeed", "ray"))
    return Check("packages", "ok", f"{len(wanted)} in range ({shown})")


def _foreign_packages() -> Check:
    """Check for other distributions' packages under our import names, which are plain words."""
    foreign = foreign_packages()
    if foreign:
        found = "; ".join(f"{name} comes from {', '.join(owners)}" for name, owners in foreign.items())
        owners = sorted({owner for names in foreign.values() for owner in names})
        return Check("names", "error", found, f"pip uninstall {' '.join(owners)}")
    return Check("names", "ok", f"no other distribution installs {', '.join(PACKAGES)}")


def foreign_packages() -> dict[str, list[str]]:
    """Return, by package name of ours, the other distributions that install a package of that name."""
    owners_of = importlib.metadata.packages_distributions()
    foreign = {
        name: sorted({owner for owner in owners_of.get(name, []) if owner.lower() != DISTRIBUTION})
        for name in PACKAGES
    }
    return {name: owners for name, owners in foreign.items() if owners}


def _compiler() -> Check:
    configure_environment()
    compiler = os.environ.get("CXX") or "c++"
    missing = [tool for tool in (compiler, "ninja") if shutil.which(tool) is None]
    if missing:
        return Check(
            "compiler",
            "error",
            f"{' and '.join(missing)} not found",
            "apt-get install g++; pip install ninja",
        )
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return Check("compiler", "ok", version.splitlines()[0] if version else compiler)


def _extension(build: bool) -> Check:
    """Check DeepSpeed's shared-memory collectives, which its CPU backend compiles at first use."""
    configure_environment()
    if os.environ.get("DS_ACCELERATOR") != "cpu":
        return Check("extension", "ok", "not needed on GPUs")
    if not is_extension_built() and not build:
        return Check(
            "extension", "warning", "not compiled yet; the first pretraining does it (about 90 s)",
            "permcode doctor --build",
        )  # fmt: skip
    if not is_extension_built():
        code = "from cluster.process_group import *; configure_environment(); load_cpu_extension()"
        root = str(Path(__file__).resolve().parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        try:
            built = subprocess.run(
                [sys.executable, "-c", code],
                env=environment, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Check("extension", "error", f"still compiling after {_BUILD_TIMEOUT_S} s", "try again")
        if built.returncode != 0 or not is_extension_built():
            reason = (built.stderr.strip().splitlines() or ["no message"])[-1]
            return Check("extension", "error", reason, "install a C++ compiler (g++) and run this again")
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or extensions_folder())
    return Check("extension", "ok", f"compiled in {folder}")


def _memory() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    finding = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB free"
    if memory.total < _MIN_MEMORY_BYTES:
        return Check("memory", "warning", finding, "the demo needs a machine with 8 GB")
    if memory.available < _MIN_MEMORY_BYTES / 2:
        return Check("memory", "warning", finding, "close other programs: the demo takes several GB")
    return Check("memory", "ok", finding)


def _disk(folder: Path) -> Check:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        return Check("disk", "error", f"{existing} is not writable", "give another --out")
    free_bytes = shutil.disk_usage(existing).free
    finding = f"{free_bytes / GIB:.1f} GiB free at {existing}"
    if free_bytes < _GOOD_DISK_BYTES:
        level: Level = "error" if free_bytes < _MIN_DISK_BYTES else "warning"
        return Check("disk", level, finding, f"free {_GOOD_DISK_BYTES // GIB} GiB or give another --out")
    return Check("disk", "ok", finding)


def _shared_memory() -> Check:
    """Check /dev/shm, where Ray's object store is; Ray falls back to slower files if it is too small."""
    shm = Path("/dev/shm")
    if not shm.is_dir():
        return Check("shm", "warning", "no /dev/shm: Ray uses files instead", "mount a tmpfs there")
    free_bytes = shutil.disk_usage(shm).free
    finding = f"{free_bytes / GIB:.2f} GiB free in /dev/shm"
    if free_bytes < _MIN_SHM_BYTES:
        return Check("shm", "warning", finding, "in a container: --shm-size=1g")
    return Check("shm", "ok", finding)


def _ports() -> Check:
    """Check that TCP ports chosen by the system work: Ray's processes and the training workers use them."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address, timeout=5):
                pass
        host = socket.gethostbyname(socket.gethostname())
    except OSError as error:
        return Check(
            "ports", "warning", f"cannot listen and connect ({error})",
            "allow TCP on the loopback interface and give this host's name an address in /etc/hosts",
        )  # fmt: skip
    return Check("ports", "ok", f"TCP ports can be bound; this host is {host}")


def _gpus() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("gpus", "ok", "none: CPU run (gloo, bf16)")
    devices = range(torch.cuda.device_count())
    names = ", ".join(sorted({torch.cuda.get_device_name(device) for device in devices}))
    finding = f"{len(devices)}: {names}"
    if any(torch.cuda.get_device_capability(device) < _BFLOAT16_CAPABILITY for device in devices):
        fix = "pretrain.precision=fp32, which takes longer, or a GPU of compute capability 8.0 or newer"
        return Check("gpus", "warning", f"{finding}; some do not compute in bf16", fix)
    return Check("gpus", "ok", finding)


def _bfloat16() -> Check:
    import torch

    if torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return Check("bfloat16", "ok", "supported natively by the processor")
    return Check("bfloat16", "ok", "computed as float32: pretrain.precision=fp32 is about as fast here")
