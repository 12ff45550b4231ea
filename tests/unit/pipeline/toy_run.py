"""A run of two toy stages, as often as a test asks for it."""

from pathlib import Path
from typing import Any

from cluster.journal import Journal
from pipeline.folder.config import RunConfig
from pipeline.folder.graph import Stage, StageContext
from pipeline.folder.recipe import load_run_config
from pipeline.mlflow.store import store_uri
from pipeline.run.run import run_pipeline
from tests.unit.pipeline.recording_reporter import RecordingReporter


class ToyRun:
    """Two stages without Ray; the second one may fail. `said` is what the last command said."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.config: RunConfig = load_run_config("smoke")
        self.ran: list[str] = []
        self.failure: BaseException | None = None
        self.said: list[str] = []
        self.warned: list[str] = []

    def stages(self, _config: RunConfig, _accepted: frozenset[str] = frozenset()) -> list[Stage]:
        journals = {"": "journal.jsonl", "arm": "arm/journal.jsonl"}
        return [
            Stage("first", {}, self.first, needs_ray=False),
            Stage(
                "second",
                {},
                self.second,
                ("first",),
                needs_ray=False,
                journals=journals,
                artifacts=("model", "one/facts.json", "two/facts.json"),
            ),
        ]

    def command(self, target: str = "second") -> None:
        close_stores()
        made: list[RecordingReporter] = []

        def make_reporter(path: Path) -> RecordingReporter:
            made.append(RecordingReporter(path))
            return made[-1]

        try:
            run_pipeline(self.config, self.out, [target], make_reporter)
        finally:
            self.said = [line for reporter in made for line in reporter.lines]
            self.warned = [line for reporter in made for line in reporter.warnings]

    def runs(self) -> dict[str, Any]:
        """MLflow's runs by name."""
        from mlflow import MlflowClient

        client = MlflowClient(store_uri(self.out, None))
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        return {found.info.run_name: found for found in client.search_runs(experiments)}

    def first(self, context: StageContext) -> dict[str, Any]:
        self.ran.append("first")
        (context.folder / "data").write_text("data")
        return {"num_files": 3, "names": ["a"], "nested": {"is_good": True}}

    def second(self, context: StageContext) -> dict[str, Any]:
        self.ran.append("second")
        assert (context.inputs["first"] / "data").read_text() == "data"
        for name in ("journal.jsonl", "arm/journal.jsonl"):
            journal = Journal(context.folder / name)
            for step in range(1, 6):
                journal.step(step, {"loss": 1.0 / step})
            journal.close()
        if self.failure is not None:
            raise self.failure
        (context.folder / "model").mkdir(exist_ok=True)
        (context.folder / "model" / "weights").write_bytes(b"12")
        for name in ("one", "two"):
            (context.folder / name).mkdir(exist_ok=True)
            (context.folder / name / "facts.json").write_text(name)
        return {"arm": {"accuracy": 0.5}, "gain": 0.25}


def close_stores() -> None:
    """Every command is a process; here MLflow's connections would outlive it, and the files that they are of."""
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for engine in (*SqlAlchemyStore._engine_map.values(), *Registry._engine_map.values()):
        engine.dispose()
