"""A client of an MLflow store: finds runs by key and logs metrics, parameters and artifacts."""

import json
import logging
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cluster.errors import UserError, first_line
from cluster.journal import metric_name
from cluster.sqlite_store import make_ready, sqlite_file
from pipeline.mlflow.journal_metrics import JournalFeed, stored_steps

KEY_TAG = "permcode.key"
_PARENT_TAG = "mlflow.parentRunId"
CHANGED_TAG = "permcode.changed."
RunStatus = Literal["FINISHED", "FAILED", "KILLED"]

_BATCH_METRICS = 1000
_BATCH_PARAMS = 100
_PARAM_VALUE_CHARS = 6000
_PARAM_NAME_CHARS = 250
_DIGEST_CHARS = 36
"""The longest digest of a dataset that MLflow accepts."""


class Tracking:
    """One MLflow experiment in one store.

    A run is identified by its key (tag `permcode.key`): the same key continues the same run.
    Only the process that the user started logs to MLflow; MLflow's global state is not changed.
    """

    def __init__(
        self,
        store_uri: str,
        artifact_root: Path | None,
        experiment: str = "permcode",
        owns_store: bool = False,
    ) -> None:
        """Open or create the store.

        With `artifact_root` None a tracking server chooses the place of artifacts. `owns_store` is true for an SQLite
        file that nothing else writes to, which may be migrated. Raises UserError if the store cannot be used.
        """
        self._client = _open_client(store_uri, owns_store)
        self._experiment_id = self._find_experiment(store_uri, artifact_root, experiment)

    def parent_run(self, name: str, key: str, params: Mapping[str, Any], known_id: str | None = None) -> str:
        """Set the run of a whole pipeline to RUNNING and return its id: `known_id` if in the store, else by `key`."""
        return self._run(name, key, params, tags={}, known_id=known_id)

    def child_run(
        self, parent_run_id: str, name: str, key: str, params: Mapping[str, Any], known_id: str | None = None
    ) -> str:
        """Set the run of a stage or job below `parent_run_id` to RUNNING and return its id, like `parent_run`."""
        return self._run(name, key, params, tags={_PARENT_TAG: parent_run_id}, known_id=known_id)

    def find_run(self, key: str) -> str | None:
        """Return the id of the run with this key, if there is one."""
        run = self._find_run(key)
        return None if run is None else str(run.info.run_id)

    def feed(self, run_id: str, journal_path: Path) -> JournalFeed:
        """Return a feed of the journal into the run; call its `send_new` every few seconds and at the end."""
        return JournalFeed(self._client, run_id, journal_path)

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log metrics of a stage's summary. Metrics that the run has at `step` already are not changed."""
        from mlflow.entities import Metric

        stored = stored_steps(self._client, run_id)
        now_ms = round(time.time() * 1000)
        new = [
            Metric(name, float(value), timestamp=now_ms, step=step)
            for name, value in ((metric_name(name), value) for name, value in metrics.items())
            if stored.get(name, -1) < step
        ]
        for start in range(0, len(new), _BATCH_METRICS):
            self._client.log_batch(run_id, metrics=new[start : start + _BATCH_METRICS])

    def log_artifact(self, run_id: str, path: Path, subfolder: str | None = None) -> None:
        """Copy a file or a whole folder to the run's artifacts, replacing an earlier copy."""
        if path.is_dir():
            self._client.log_artifacts(run_id, str(path), subfolder)
        else:
            self._client.log_artifact(run_id, str(path), subfolder)

    def log_dataset(self, run_id: str, name: str, digest: str, source: str, context: str) -> None:
        """Log the name and the fingerprint of data that a run used; `context` is the split ("train", "test")."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(name=name, digest=digest[:_DIGEST_CHARS], source_type="local", source=source)
        tags = [InputTag(key="mlflow.data.context", value=context)]
        self._client.log_inputs(run_id, [DatasetInput(dataset=dataset, tags=tags)])

    def log_table(self, run_id: str, columns: Mapping[str, list[Any]], name: str) -> None:
        """Log a table as an artifact that MLflow's user interface can show."""
        self._client.log_table(run_id, dict(columns), name)

    def finish(self, run_id: str, status: RunStatus) -> None:
        """End the run with a status."""
        self._client.set_terminated(run_id, status=status)

    def end_dead(self, run_id: str) -> int:
        """Set the run and all below it that are still RUNNING to KILLED; return their number.

        The caller knows that no process works on the run. Returns 0 for a run that the store does not have.
        """
        if not self._has_run(run_id):
            return 0
        waiting, num_ended = [run_id], 0
        while waiting:
            parent = waiting.pop()
            below = self._client.search_runs([self._experiment_id], f"tags.`{_PARENT_TAG}` = '{parent}'")
            waiting += [str(run.info.run_id) for run in below]
            if self._client.get_run(parent).info.status == "RUNNING":
                self.finish(parent, "KILLED")
                num_ended += 1
        return num_ended

    def _has_run(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _find_experiment(self, store_uri: str, artifact_root: Path | None, experiment: str) -> str:
        found = self._client.get_experiment_by_name(experiment)
        if found is not None and found.lifecycle_stage != "active":
            raise UserError(
                f"the MLflow experiment {experiment!r} in {store_uri} was deleted: restore it with "
                f"`mlflow experiments restore -x {found.experiment_id}`"
            )
        if found is not None:
            return str(found.experiment_id)
        location = None if artifact_root is None else artifact_root.resolve().as_uri()
        return str(self._client.create_experiment(experiment, artifact_location=location))

    def _run(
        self,
        name: str,
        key: str,
        params: Mapping[str, Any],
        tags: dict[str, str],
        known_id: str | None = None,
    ) -> str:
        if known_id is not None and self._has_run(known_id):
            run = self._client.get_run(known_id)
        else:
            run = self._find_run(key)
        if run is not None:
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            run = self._client.create_run(
                self._experiment_id,
                tags={KEY_TAG: key, "mlflow.source.name": "permcode", "mlflow.source.type": "LOCAL", **tags},
                run_name=name,
            )
        run_id = str(run.info.run_id)
        self._log_params(run_id, params, known=run.data.params)
        return run_id

    def _find_run(self, key: str) -> Any:
        found = self._client.search_runs([self._experiment_id], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
        return found[0] if found else None

    def _log_params(self, run_id: str, params: Mapping[str, Any], known: Mapping[str, str]) -> None:
        """Log parameters. MLflow refuses to change one: a parameter that changed keeps its value, and a tag is set."""
        from mlflow.entities import Param

        flat = flat_params(params)
        for name in known.keys() & flat.keys():
            if known[name] != flat[name]:
                self._client.set_tag(run_id, f"{CHANGED_TAG}{name}"[:_PARAM_NAME_CHARS], flat[name])
        new = [Param(name, value) for name, value in flat.items() if name not in known]
        for start in range(0, len(new), _BATCH_PARAMS):
            self._client.log_batch(run_id, params=new[start : start + _BATCH_PARAMS])


def flat_params(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested parameters in MLflow's form: dotted names, text values cut to the store's limit."""
    flat: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            flat.update(flat_params(value, f"{prefix}{name}."))
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        flat[f"{prefix}{name}"[:_PARAM_NAME_CHARS]] = text[:_PARAM_VALUE_CHARS]
    return flat


def _open_client(store_uri: str, owns_store: bool) -> Any:
    """Return an MlflowClient with its database set up, without MLflow's messages on the terminal."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # MLflow itself retries for minutes; the thread that logs has its own retries.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    with warnings.catch_warnings():
        # MLflow's own use of SQLAlchemy, which users of permcode cannot fix.
        warnings.simplefilter("ignore", DeprecationWarning)
        return _set_up_client(store_uri, owns_store)


def _set_up_client(store_uri: str, owns_store: bool) -> Any:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    # It prints the traceback of every database error that it raises, which permcode reports in one line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    try:
        if (path := sqlite_file(store_uri)) is not None:
            make_ready(path, owns_store)
        client = MlflowClient(tracking_uri=store_uri)
        client.search_experiments(max_results=1)
    except (MlflowException, SQLAlchemyError) as error:
        raise UserError(
            f"the MLflow store {store_uri} cannot be used ({first_line(error)}): fix or move it"
        ) from error
    return client
