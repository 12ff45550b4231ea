import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.process_group import (
    Backend,
    configure_environment,
    extensions_folder,
    local_backend,
    redirect_output,
)


def test_output_of_python_children_and_warnings_goes_to_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "worker.log"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with redirect_output(log):
            os.write(1, b"from C++\n")
            os.write(2, b"from C++ too\n")
            subprocess.run(["sh", "-c", "echo from a child"], check=True)
            warnings.warn("deprecated thing", UserWarning, stacklevel=1)
            logging.getLogger("deepspeed").warning("loss scale")
    os.write(1, b"afterwards\n")
    text = log.read_text()
    for part in (
        "from C++\n",
        "from C++ too\n",
        "from a child\n",
        "deprecated thing",
        "deepspeed: loss scale",
    ):
        assert part in text
    assert capfd.readouterr() == ("afterwards\n", "")


def test_output_is_restored_after_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with redirect_output(tmp_path / "log"):
            os.write(1, b"hidden\n")
            raise KeyError("x")

    with pytest.raises(KeyError):
        work()
    os.write(1, b"shown\n")
    assert capfd.readouterr().out == "shown\n"


def test_workers_load_deepspeed_without_mlflow() -> None:
    program = """
import importlib.util, sys
from cluster.process_group import import_deepspeed
import_deepspeed()
print("deepspeed" in sys.modules, "mlflow" in sys.modules, importlib.util.find_spec("mlflow") is not None)
"""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True False True"


def test_the_environment_keeps_values_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DS_ACCELERATOR", "LOCAL_SIZE", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    beside_python = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"/usr/bin:{beside_python}:/bin")
    configure_environment()
    assert os.environ.get("DS_ACCELERATOR") == ("cpu" if local_backend() == "gloo" else None)
    assert os.environ["LOCAL_SIZE"] == "2"
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert Path(os.environ["TORCH_EXTENSIONS_DIR"]).parent == tmp_path / "permcode" / "torch_extensions"
    assert os.environ["PATH"] == f"{beside_python}:/usr/bin:/bin"


@pytest.mark.parametrize(("backend", "accelerator"), [("gloo", "cpu"), ("nccl", "cuda")])
def test_accelerator_follows_the_backend_chosen_for_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: Backend, accelerator: str
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr("torch.cuda.is_available", lambda: backend == "gloo")
    monkeypatch.setenv("DS_ACCELERATOR", "inherited")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    configure_environment(backend)
    assert os.environ["DS_ACCELERATOR"] == accelerator


def test_environments_do_not_share_compiled_extensions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = extensions_folder()
    assert extensions_folder() == one
    monkeypatch.setattr(sys, "prefix", "/another/checkout/.venv")
    assert extensions_folder() != one


def test_extensions_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown_user(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown_user)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert extensions_folder().is_relative_to(tmp_path / f"permcode-{os.getuid()}")
    (tmp_path / f"permcode-{os.getuid()}").rmdir()
    (tmp_path / f"permcode-{os.getuid()}").symlink_to("/")
    with pytest.raises(UserError, match="belongs to another user: set XDG_CACHE_HOME"):
        extensions_folder()


def test_extensions_go_elsewhere_when_home_is_not_writable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert extensions_folder().is_relative_to(tmp_path / f"permcode-{os.getuid()}")
