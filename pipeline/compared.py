"""`permcode evaluate --all`: every system of an experiment on the same items, beside each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.reporter import Reporter
from finetune.experiment.files import write_rows
from finetune.experiment.loaded import LoadedSystem
from finetune.experiment.results import graded, summary_of
from finetune.experiment.stage import read_summary
from finetune.modalities.base import Row
from finetune.systems.saved import read_saved
from pipeline.experiment_table import summary_lines
from pipeline.finetuned import Judge, decoding_in, model_folder, source_of, training_of
from pipeline.task_folder import finished_tasks, several_tasks, task_folder
from pipeline.text_files import check_output

_OF_TRAINING = ("num_parameters", "num_trained", "steps", "best_step")


def evaluate_all(
    place: Path,
    task: str | None,
    overrides: Sequence[str],
    prep: Path | None,
    output: Path | None,
    reporter: Reporter,
) -> None:
    """Judge all systems of the experiment `place` on its test split, or on another one that `overrides` name.

    Systems that only count are made again from the experiment's training data. Prints the experiment's table for these
    items; `output` gets all predictions as JSON lines, each with its system and seed. Raises UserError for data that
    cannot be used.
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
    judge: Judge | None = None
    for name, found in trained["systems"].items():
        of_training = {key: found[key] for key in _OF_TRAINING}
        for seed in found["seeds"]:
            folder = model_folder(experiment, name, seed)
            usable = LoadedSystem.load(folder, decoding=decoding_of[name], training=training)
            if judge is None:
                judge = Judge.of(usable.task_config, of_task, source_of(folder, prep))
                if output is not None:
                    check_output(output, "--output", *judge.task.files())
            answers = judge.answers(usable, f"{name}, seed {seed}", reporter)
            told = {"seed": seed, "facts": judge.data.facts, "cut": answers.cut, **of_training}
            results.setdefault(name, []).append(graded(answers.measured) | told)
            rows += [{"system": name, "seed": seed, **row} for row in answers.rows]
    for line in summary_lines(summary_of(results, trained["baseline"]), str(experiment)):
        reporter.line(line)
    if output is not None:
        write_rows(output, rows)
        reporter.line(f"predictions: {output}")


def find_experiment(place: Path) -> Path:
    """The finished experiment that `place` is, or holds. Raises UserError when there is none, or several."""
    found = finished_tasks(place)
    if not found:
        raise UserError(
            f"{place} holds no finished experiment: give the folder of a finished `permcode finetune --from ...`"
        )
    if len(found) > 1:
        raise several_tasks(place, found)
    return found[0]


def _decoding_of(folders: Mapping[str, Path], decoding: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Of every system that decodes what is asked for. Raises UserError where none does."""
    found = {
        name: decoding if "decoding" in read_saved(folder).system else {} for name, folder in folders.items()
    }
    if decoding and not any(found.values()):
        raise UserError(f"decoding.{next(iter(decoding))}: no system of the experiment decodes anything")
    return found
