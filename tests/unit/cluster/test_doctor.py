import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import cluster.doctor
from cluster.doctor import Check, foreign_packages, render, run_checks
from cluster.reporter import Reporter


@pytest.fixture
def _environment_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())


def by_name(out: Path) -> dict[str, Check]:
    return {check.name: check for check in run_checks(out)}


@pytest.mark.usefixtures("_environment_restored")
def test_this_machine_can_run(tmp_path: Path) -> None:
    checks = by_name(tmp_path / "not" / "there")
    assert [name for name, check in checks.items() if check.level == "error"] == []
    assert not (tmp_path / "not").exists()
    assert str(tmp_path) in checks["disk"].finding


@pytest.mark.usefixtures("_environment_restored")
def test_each_problem_is_found_with_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["torch>=99", "numpy>=1", "surely-not-installed>=1", "ruff>=99; extra == 'dev'"]
    monkeypatch.setattr(cluster.doctor.importlib.metadata, "requires", lambda name: declared)
    monkeypatch.setattr(
        cluster.doctor.importlib.metadata,
        "packages_distributions",
        lambda: {"cluster": ["permcode", "cluster"], "pipeline": ["permcode"], "numpy": ["numpy"]},
    )
    monkeypatch.setattr(cluster.doctor.shutil, "which", lambda tool: None)
    monkeypatch.setattr(cluster.doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    monkeypatch.setattr(cluster.doctor.socket, "gethostbyname", _unknown_host)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=4 << 30, available=1 << 30))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    checks = by_name(tmp_path)
    assert checks["packages"].finding.startswith("torch ")
    assert "surely-not-installed is missing" in checks["packages"].finding
    assert "ruff" not in checks["packages"].finding
    assert checks["names"].fix == "pip uninstall cluster"
    wrong = {name: check.level for name, check in checks.items() if check.level != "ok"}
    assert wrong == {
        "packages": "error",
        "names": "error",
        "compiler": "error",
        "extension": "warning",
        "memory": "warning",
        "disk": "error",
        "shm": "warning",
        "ports": "warning",
    }
    assert all(checks[name].fix for name in wrong)


@pytest.mark.usefixtures("_environment_restored")
def test_machine_with_8_gb_and_little_disk_gets_warnings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight_gb = SimpleNamespace(total=8_000_000_000, available=6_000_000_000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: eight_gb)
    monkeypatch.setattr(cluster.doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=2 << 30))
    checks = by_name(tmp_path)
    assert (checks["memory"].level, checks["disk"].level) == ("ok", "warning")


def _unknown_host(name: str) -> str:
    raise OSError(f"{name} not known")


def test_only_errors_set_the_exit_code() -> None:
    console = Console(file=io.StringIO())
    reporter = Reporter(console=console)
    warning = Check("shm", "warning", "small", "larger")
    assert render([Check("python", "ok", "3.12"), warning], reporter) == 0
    assert render([warning, Check("disk", "error", "full", "free some")], reporter) == 1
    assert isinstance(console.file, io.StringIO)
    assert "error   disk  full -> free some\n" in console.file.getvalue()


def test_no_other_distribution_uses_our_names() -> None:
    assert foreign_packages() == {}
