"""MLflow takes seconds to set up a database, so it is set up once and copied."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.mlflow.tracking import Tracking


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Return a function that puts an empty store into a folder and returns its URI."""
    template = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    # Another experiment than the tests', whose artifacts would be stored here.
    Tracking(f"sqlite:///{template}", template.parent, experiment="template")

    def copied_to(folder: Path) -> str:
        shutil.copy(template, folder / "mlflow.db")
        return f"sqlite:///{folder}/mlflow.db"

    return copied_to
