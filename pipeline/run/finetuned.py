"""Uses finetuned systems: predicts for a file of inputs, evaluates one system or all of an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from cluster.errors import UserError
from cluster.reporter import Reporter
from finetune.experiment.files import write_rows
from finetune.experiment.kinds import MODALITIES, TaskConfig
from finetune.experiment.loaded import LoadedSystem, TrainingData, columns_of
from finetune.experiment.results import BOOTSTRAP_SEED, cut_texts, graded, summary_of
from finetune.experiment.stage import read_summary
from finetune.formats.records import read_records
from finetune.metrics.intervals import estimate
from finetune.modalities.base import Answers, Row, Source
from finetune.systems.saved import SYSTEM_NAME, read_saved
from finetune.tasks.base import Task
from pipeline.folder.config import RunConfig
from pipeline.folder.config_errors import explain
from pipeline.folder.experiment_config import ExperimentRunConfig, checked_prep, prep_folder
from pipeline.folder.graph import stage_folder
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.folder.recipe import apply_override, check_given_once
from pipeline.folder.run_folder import read_config
from pipeline.folder.stage_record import read_record
from pipeline.folder.task_folder import (
    best_system,
    finished_tasks,
    model_folder,
    several_tasks_error,
    task_folder,
)
from pipeline.folder.user_files import check_output
from pipeline.report.experiment_table import metric_text, summary_lines


def find_system(path: Path, task: str | None = None) -> Path:
    """Return the model folder of the system `path`, or of the best system of the experiment or task `path`.

    `task` selects a task of a run by name or kind. Raises UserError if there is none.
    """
    path = task_folder(path, task)
    for folder in (path, path / "model"):
        if (folder / SYSTEM_NAME).is_file():
            return folder
    experiments = {folder: best_system(folder / StageFiles.RESULT) for folder in finished_tasks(path)}
    found = {folder: best for folder, best in experiments.items() if best is not None}
    if not found:
        raise UserError(
            f"{path} holds no finetuned system: give the folder of a finished `permcode finetune --from ...`, or of "
            "one system's model"
        )
    if len(found) > 1:
        raise several_tasks_error(path, list(found))
    return next(iter(found.values()))


def predict(
    system: Path, task: str | None, given: Path, output: Path, overrides: Sequence[str], reporter: Reporter
) -> None:
    """Write the rows of `given` (JSON lines, a JSON array, Parquet) with predictions added to `output` as JSON lines.

    `overrides` may only change keys of decoding. Raises UserError for a row without the columns that the system reads;
    `output` is then not written.
    """
    check_output(output, "--output", given)
    decoding, others = decoding_in(overrides)
    if others:
        raise UserError(f"{others[0]}: only keys of decoding can be set here, e.g. decoding.beam=4")
    folder = find_system(system, task)
    usable = LoadedSystem.load(folder, decoding=decoding, training=training_of(folder))
    columns = columns_of(usable.task_config)
    rows = read_records(given, columns.needed, keeps_others=True)
    with reporter.bar("predict", len(rows), "rows") as bar:
        try:
            answers = usable.answer(rows, bar.update)
        except UserError as error:
            raise UserError(f"{given}: {error}") from None
        bar.update(len(rows))
    write_rows(output, [row | answer for row, answer in zip(rows, answers, strict=True)])
    reporter.line(f"{len(rows):,} predictions in {output}")


def evaluate(
    system: Path,
    task: str | None,
    overrides: Sequence[str],
    prep: Path | None,
    output: Path | None,
    reporter: Reporter,
) -> None:
    """Evaluate a system on its task's test split, or on another one that `overrides` (test=FILE, folder=DIR) name.

    Overrides that begin with `decoding.` change how the system writes. `prep` is the corpus of tasks that make their
    data from one; None stands for the experiment's. Prints every metric with its 95% interval and writes the
    predictions to `output` as JSON lines. Raises UserError for data that cannot be used.
    """
    if output is not None:
        check_output(output, "--output")
    folder = find_system(system, task)
    decoding, of_task = decoding_in(overrides)
    usable = LoadedSystem.load(folder, decoding=decoding, training=training_of(folder))
    loaded_task = LoadedTask.load(usable.task_config, of_task, source_of(folder, prep))
    if output is not None:
        check_output(output, "--output", *loaded_task.task.files())
    answers = loaded_task.evaluate(usable, "evaluate", reporter)
    for measured in answers.measured:
        found = estimate(measured, BOOTSTRAP_SEED)
        reporter.line(f"{measured.name:<28} {metric_text(asdict(found))}, {found.num_items:,} items")
    if cut := cut_texts(answers.cut):
        reporter.line(f"cut: {', '.join(cut)}")
    if output is not None:
        write_rows(output, answers.rows)
        reporter.line(f"predictions: {output}")


@dataclass(frozen=True)
class LoadedTask:
    """A task with its loaded data, on whose test split systems are evaluated."""

    task: Task
    data: Any

    @classmethod
    def load(cls, task_config: Any, overrides: Sequence[str], source: Source) -> "LoadedTask":
        """Load the task's data after `overrides` of its config. Raises UserError for data that cannot be used."""
        task = (_overridden(task_config, overrides)).build()
        return cls(task, task.load(source))

    def evaluate(self, usable: LoadedSystem, label: str, reporter: Reporter) -> Answers:
        """Return a system's answers to the test split and their measures."""
        evaluation = MODALITIES[usable.modality].evaluation(
            self.task, self.data, valid_items=1, threshold=usable.threshold
        )
        with reporter.bar(label, evaluation.num_test_items, "items") as bar:
            answers = evaluation.test(usable.system, bar.update)
            bar.update(evaluation.num_test_items)
        return answers


def training_of(folder: Path) -> TrainingData:
    """Return a function that loads the training data of the experiment that `folder` is in.

    The data are read at the first call, which raises UserError if they no longer can be read.
    """
    loaded: list[Any] = []

    def training(task_config: Any) -> Any:
        if not loaded:
            try:
                loaded.append(task_config.build().load(source_of(folder, None)))
            except UserError as error:
                raise UserError(
                    f"{folder}: a system without trained weights needs its training data again: {error}"
                ) from None
        return loaded[0]

    return training


def decoding_in(overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Split overrides into the settings of decoding and the other overrides."""
    check_given_once([override.removeprefix("task.") for override in overrides])
    values: dict[str, Any] = {}
    others = []
    for override in overrides:
        if override.startswith("decoding."):
            apply_override(values, override.removeprefix("decoding."))
        else:
            others.append(override)
    return values, others


def source_of(system: Path, prep: Path | None) -> Source:
    """Return the corpus and the seed that the task of `system` made its data from, as far as they can be found."""
    given = checked_prep(prep) if prep else None
    folder = system.absolute()
    for place in (folder, *folder.parents):
        if (place / RunFiles.CONFIG).is_file():
            found = _source_in(place, folder)
            return found if given is None else Source(given, found.seed)
    return Source(given, 0)


def _source_in(place: Path, system: Path) -> Source:
    """Return the source of `system`, which is in the folder `place` of an experiment, a run, or something else."""
    values = read_config(place / RunFiles.CONFIG)
    try:
        if "finetune" in values:
            return _source_in_run(RunConfig.model_validate(values), place, system)
        config = ExperimentRunConfig.model_validate(values)
    except ValidationError:  # a config.yaml of another program
        return Source(None, 0)
    return Source(prep_folder(config), config.seed)


def _source_in_run(config: RunConfig, place: Path, system: Path) -> Source:
    """Return the corpus and the seed of the task whose stage folder, NAME-KEY, holds the system."""
    stage = place / system.relative_to(place).parts[0] if system != place else place
    task = config.finetune.get(stage.name.rsplit("-", 1)[0])
    record = read_record(stage)
    if task is None or record is None:
        return Source(None, 0)
    prep = stage_folder(place, "prep", record.inputs["prep"])
    return Source(prep if prep.is_dir() else None, task.seed)


def _overridden(task_config: Any, overrides: Sequence[str]) -> Any:
    values = task_config.model_dump(mode="json")
    for override in overrides:
        apply_override(values, override.removeprefix("task."))
    original = task_config.model_dump(mode="json")
    if any(values.get(key) != original.get(key) for key in ("folder", "test")):
        values |= {name: None for name in ("train", "valid") if _is_elsewhere(task_config, values, name)}
        if values.get("train") is None and values.get("valid") == original.get("valid") is not None:
            values["valid"] = None  # nothing is selected on the validation split without training
    if values["kind"] != task_config.kind:
        raise UserError(
            f"kind={values['kind']}: the system was finetuned for {task_config.kind}, not for another task"
        )
    try:
        return TypeAdapter[Any](TaskConfig).validate_python(values)
    except ValidationError as error:
        raise UserError(explain(error, type(task_config))) from None


def _is_elsewhere(task_config: Any, values: Mapping[str, Any], name: str) -> bool:
    """Return whether the split `name`, which is not evaluated, is missing in another folder and may be missing."""
    given = values.get(name)
    field = type(task_config).model_fields.get(name)
    if given is None or field is None or type(None) not in get_args(field.annotation):
        return False
    if given != getattr(task_config, name) or values.get("folder") is None:
        return False
    if task_config.test is None:  # the one file was split
        return True
    sides = (str(values.get("source")), str(values.get("target")))
    return not any((Path(values["folder"]) / given.replace("{side}", side)).exists() for side in sides)


_TRAINING_KEYS = ("num_parameters", "num_trained", "steps", "best_step")


def evaluate_all(
    place: Path,
    task: str | None,
    overrides: Sequence[str],
    prep: Path | None,
    output: Path | None,
    reporter: Reporter,
) -> None:
    """Evaluate all systems of the experiment `place` on its test split, or on another one that `overrides` name.

    Systems without trained weights (such as BM25) are built again from the experiment's training data. Prints the
    experiment's table for these items and writes all predictions to `output` as JSON lines, each with its system and
    seed. Raises UserError for data that cannot be used.
    """
    if output is not None:
        check_output(output, "--output")
    experiment = find_experiment(task_folder(place, task))
    trained = read_summary(experiment)
    decoding, of_task = decoding_in(overrides)
    decoding_of = _decoding_of(
        {
            name: model_folder(experiment, name, found["seeds"][0])
            for name, found in trained["systems"].items()
        },
        decoding,
    )
    training = training_of(experiment)
    results: dict[str, list[dict[str, Any]]] = {}
    rows: list[Row] = []
    loaded_task: LoadedTask | None = None
    for name, found in trained["systems"].items():
        training_facts = {key: found[key] for key in _TRAINING_KEYS}
        for seed in found["seeds"]:
            folder = model_folder(experiment, name, seed)
            usable = LoadedSystem.load(folder, decoding=decoding_of[name], training=training)
            if loaded_task is None:
                loaded_task = LoadedTask.load(usable.task_config, of_task, source_of(folder, prep))
                if output is not None:
                    check_output(output, "--output", *loaded_task.task.files())
            answers = loaded_task.evaluate(usable, f"{name}, seed {seed}", reporter)
            facts = {"seed": seed, "facts": loaded_task.data.facts, "cut": answers.cut, **training_facts}
            results.setdefault(name, []).append(graded(answers.measured) | facts)
            rows += [{"system": name, "seed": seed, **row} for row in answers.rows]
    for line in summary_lines(summary_of(results, trained["baseline"]), str(experiment)):
        reporter.line(line)
    if output is not None:
        write_rows(output, rows)
        reporter.line(f"predictions: {output}")


def find_experiment(place: Path) -> Path:
    """Return the finished experiment that `place` is or holds. Raises UserError if there is none, or several."""
    found = finished_tasks(place)
    if not found:
        raise UserError(
            f"{place} holds no finished experiment: give the folder of a finished `permcode finetune --from ...`"
        )
    if len(found) > 1:
        raise several_tasks_error(place, found)
    return found[0]


def _decoding_of(folders: Mapping[str, Path], decoding: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the decoding settings of every system: `decoding` for those that decode, none for the others.

    Raises UserError if settings are given and no system decodes.
    """
    if not decoding:
        return dict.fromkeys(folders, {})
    found = {
        name: decoding if "decoding" in read_saved(folder).system else {} for name, folder in folders.items()
    }
    if not any(found.values()):
        raise UserError(f"decoding.{next(iter(decoding))}: no system of the experiment decodes")
    return found
