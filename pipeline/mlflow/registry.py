"""Registers finetuned systems in MLflow's model registry, with their code; the best one has the alias champion."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from finetune.modalities.base import Columns, ModalityName

CHAMPION = "champion"
_HEADLINE_TAG, _DATA_TAG, _METRIC_TAG = "permcode.headline", "permcode.data", "permcode.metric"
_PACKAGES = ("cluster", "data_prep", "pretrain", "finetune")
_REQUIREMENTS = (
    "torch", "numpy", "pandas", "safetensors", "pydantic", "tokenizers", "gigatoken", "sentencepiece", "ninja",
    "scikit-learn", "rapidfuzz", "tree-sitter", "tree-sitter-language-pack", "pyarrow", "fsspec", "pyyaml", "rich",
    "webdataset",
)  # fmt: skip
_EXAMPLE = {
    "text": "def size(self): return len(self.items)",
    "suffix": "\n\ndef is_empty(self): return not self.items",
    "other": "int size() { return n; }",
    "query": "number of elements",
    "candidate": "def size(self): return len(self.items)",
}
"""An example value for every column, for a model's input example."""


@dataclass(frozen=True)
class Candidate:
    """A trained system that may be the best one of its task."""

    task: str
    modality: ModalityName
    columns: Columns
    folder: Path
    """Its model folder."""
    metric: str
    headline: float
    """The value of `metric` on the test split."""
    data: str
    """The fingerprint of the test items: headlines on other items are not compared."""

    @property
    def registered_name(self) -> str:
        """The name of the task's model in the registry."""
        return f"permcode-{self.task}"


@dataclass(frozen=True)
class Registered:
    """A version in the registry; `is_champion` is true if it is the champion now."""

    name: str
    version: str
    is_champion: bool


def register(candidate: Candidate, store: str, run_id: str) -> Registered:
    """Log the system on a run and register it; it becomes champion if it beats the champion on the same data.

    It also becomes champion if there is none yet, or one that was evaluated on other data. Raises MLflow's errors.
    """
    import mlflow

    mlflow.set_tracking_uri(store)
    mlflow.set_registry_uri(store)
    client = mlflow.MlflowClient()
    theirs = _champion_tags(client, candidate.registered_name)
    with _quiet(), mlflow.start_run(run_id=run_id, log_system_metrics=False):
        info = _log(candidate)
    version = str(info.registered_model_version)
    tags = {_HEADLINE_TAG: repr(candidate.headline), _DATA_TAG: candidate.data, _METRIC_TAG: candidate.metric}
    for key, value in tags.items():
        client.set_model_version_tag(candidate.registered_name, version, key, value)
    is_champion = _beats(candidate, theirs)
    if is_champion:
        client.set_registered_model_alias(candidate.registered_name, CHAMPION, version)
    return Registered(candidate.registered_name, version, is_champion)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress MLflow's progress messages and warnings during the block."""
    import warnings

    bar = "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"
    before = os.environ.get(bar)
    os.environ[bar] = "false"
    try:
        with redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            del os.environ[bar]
        else:
            os.environ[bar] = before


def _beats(candidate: Candidate, theirs: Mapping[str, str] | None) -> bool:
    if (
        theirs is None
        or theirs.get(_DATA_TAG) != candidate.data
        or theirs.get(_METRIC_TAG) != candidate.metric
    ):
        return True
    return candidate.headline > float(theirs.get(_HEADLINE_TAG, "-inf"))


def _champion_tags(client: Any, name: str) -> dict[str, str] | None:
    from mlflow.exceptions import MlflowException

    try:
        return dict(client.get_model_version_by_alias(name, CHAMPION).tags)
    except MlflowException:
        return None


def _log(candidate: Candidate) -> Any:
    import mlflow
    import pandas

    columns = candidate.columns
    example = {name: _EXAMPLE[name] for name in (*columns.needed, *columns.optional)}
    return mlflow.pyfunc.log_model(
        name="model",
        python_model=str(code_folder("finetune") / "experiment" / "serving.py"),
        artifacts={"system": str(candidate.folder)},
        code_paths=[str(code_folder(package)) for package in _PACKAGES],
        signature=_signature(candidate),
        input_example=pandas.DataFrame([example]),
        pip_requirements=requirements(),
        registered_model_name=candidate.registered_name,
    )


def _signature(candidate: Candidate) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    columns = [ColSpec("string", name) for name in candidate.columns.needed]
    columns += [ColSpec("string", name, required=False) for name in candidate.columns.optional]
    answer = ColSpec("double" if candidate.modality in ("rank", "predict") else "string", "prediction")
    return ModelSignature(inputs=Schema(columns), outputs=Schema([answer]))


def code_folder(package: str) -> Path:
    """Return the folder of one of permcode's packages."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def requirements() -> list[str]:
    """Return the pinned requirements of a served system, as installed here."""
    from importlib.metadata import version

    return [f"{name}=={version(name).partition('+')[0]}" for name in ("mlflow", *_REQUIREMENTS)]
