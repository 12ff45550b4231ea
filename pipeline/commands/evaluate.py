"""`permcode predict` and `permcode evaluate`: finetuned systems answer the rows of a file or a test split."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes
from pipeline.commands.options import TaskOfRun

System = Annotated[
    Path,
    typer.Argument(
        metavar="SYSTEM",
        help="The folder of `permcode finetune --from`, of a run (with --task), or of a run's task (RUN/NAME-KEY): "
        "its best system is used. Or the model folder of one system.",
        show_default=False,
    ),
]


def predict(
    system: System,
    given: Annotated[
        Path, typer.Option("--input", "-i", metavar="FILE", help="JSON lines, a JSON array or Parquet.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="JSON lines; nothing is written on an error."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of decoding, for systems that write: decoding.beam=4 decoding.temperature=0.8.",
            show_default=False,
        ),
    ] = None,
    task: TaskOfRun = None,
) -> None:
    """Write a finetuned system's answers to the rows of a file.

    Rows have the columns text (and suffix, for infilling), or query and candidate, or text (and other).

    \b
    permcode predict runs/translate --input functions.jsonl --output translated.jsonl
    permcode predict runs/demo --task search --input pairs.jsonl --output scored.jsonl
    """
    with exit_codes(None):
        from pipeline.run.finetuned import predict as predict_rows

        predict_rows(system, task, given, output, overrides or [], Reporter())


def evaluate(
    system: System,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Keys of the task (test=FILE folder=DIR max_test=100) and of decoding (decoding.beam=4).",
            show_default=False,
        ),
    ] = None,
    prep: Annotated[
        Path | None,
        typer.Option(
            "--prep",
            metavar="DIR",
            help="Another corpus than the experiment's, for a task that makes its data from a corpus.",
            show_default=False,
        ),
    ] = None,
    all_systems: Annotated[
        bool,
        typer.Option(
            "--all", help="Evaluate all systems of the experiment, also those without trained weights."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the predictions as JSON lines."),
    ] = None,
    task: TaskOfRun = None,
) -> None:
    """Evaluate a finetuned system on its task's test split or on another file; with --all, the whole experiment.

    \b
    permcode evaluate runs/translate
    permcode evaluate runs/demo --task search
    permcode evaluate runs/translate decoding.beam=8
    permcode evaluate runs/translate folder=/data/others test=held-out.{side} --output predictions.jsonl
    permcode evaluate runs/translate folder=/data/others test=held-out.{side} --all
    """
    with exit_codes(None):
        from pipeline.run.finetuned import evaluate as evaluate_system
        from pipeline.run.finetuned import evaluate_all

        run_evaluation = evaluate_all if all_systems else evaluate_system
        run_evaluation(system, task, overrides or [], prep, output, Reporter())
