"""The commands that run a recipe's stages: run, prep, pretrain, finetune, report, submit."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cluster.errors import UserError
from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes
from pipeline.folder.user_files import check_place, refuse_url

Recipe = Annotated[
    str,
    typer.Option(
        "--recipe", "-r", metavar="NAME_OR_FILE", help="A recipe's name (demo, base) or a YAML file."
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="DIR", help="The run's folder; created if missing, resumed if it holds a run."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Overrides of the recipe, dotted: seed=1 prep.source.max_total_bytes=20000000. "
        "--dry-run shows every key and its value.",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the resolved config, and what would run and why; write nothing."),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="KEY",
        help="Resume pretraining with another value of this setting, e.g. schedule.peak_learning_rate. Repeatable. "
        "Settings of workers, memory, checkpoints and validation may be changed without it.",
        show_default=False,
    ),
]
KeepAlive = Annotated[
    bool,
    typer.Option(
        "--keep-alive", help="Try again after what may pass: a lost process, node, head or connection."
    ),
]


def run(
    recipe: Recipe,
    out: Out,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    accept: Accept = None,
    keep_alive: KeepAlive = False,
) -> None:
    """Run all stages, from source code to the report.

    \b
    permcode run --recipe demo --out runs/demo
    permcode run --recipe my.yaml --out runs/mine seed=1
    permcode run --recipe demo --out runs/code prep.source.kind=directory prep.source.path=/path/to/code
    """
    if keep_alive and not dry_run:
        _keep_alive("run", recipe, out, overrides, accept)
    _run_until(["report"], recipe, out, overrides, dry_run, accept)


def prep(
    recipe: Recipe,
    out: Out,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    keep_alive: KeepAlive = False,
) -> None:
    """Prepare the corpus: read, filter, split, tokenise, write shards."""
    if keep_alive and not dry_run:
        _keep_alive("prep", recipe, out, overrides)
    _run_until(["prep"], recipe, out, overrides, dry_run)


def pretrain(
    recipe: Recipe,
    out: Out,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    accept: Accept = None,
    keep_alive: KeepAlive = False,
) -> None:
    """Run everything up to the pretrained model."""
    if keep_alive and not dry_run:
        _keep_alive("pretrain", recipe, out, overrides, accept)
    _run_until(["pretrain"], recipe, out, overrides, dry_run, accept)


def finetune(
    recipe: Recipe,
    out: Out,
    overrides: Overrides = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Finetune this model (a run, stage, checkpoint or model folder) on the task of an experiment's "
            "recipe.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", min=1, help="Train every system with N seeds.", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Train systems on a task and compare them; without --from, the tasks of a run.

    \b
    permcode finetune --recipe translate_java_cs --from runs/java_cs --out runs/translate task.folder=DATA
    permcode finetune --recipe my_task.yaml --from runs/mine --out runs/task --seeds 3
    permcode finetune --recipe demo --out runs/demo
    """
    if model is None:
        with exit_codes(None):
            if seeds is not None:
                raise UserError("--seeds is for an experiment: give the model to finetune with --from RUN")
        _run_until(None, recipe, out, overrides, dry_run)
        return
    with exit_codes(None if dry_run else out, only_shows=dry_run):
        from pipeline.folder.recipe import load_experiment_config

        check_place(out)
        given = [f"model={model.absolute()}"] + ([] if seeds is None else [f"num_seeds={seeds}"])
        config = load_experiment_config(recipe, [*given, *(overrides or [])])

        from pipeline.folder.accepted_changes import EXTENDABLE_KEYS
        from pipeline.run.dry_run import stage_lines
        from pipeline.run.experiment import experiment_stages, run_experiments, survey_lines

        if not dry_run:
            run_experiments(config, out, Reporter)
            return
        for line in [
            *stage_lines(experiment_stages(config), config, out, EXTENDABLE_KEYS),
            "",
            *survey_lines(config),
        ]:
            Reporter().line(line)


def report(recipe: Recipe, out: Out, overrides: Overrides = None, dry_run: DryRun = False) -> None:
    """Write the report of a finished run; never trains anything."""
    if not dry_run:
        with exit_codes(out):
            from pipeline.folder.recipe import load_run_config

            config = load_run_config(recipe, overrides or [])

            from pipeline.run.run import check_report_is_possible

            check_report_is_possible(config, out)
    _run_until(["report"], recipe, out, overrides, dry_run)


def submit(
    recipe: Recipe,
    out: Out,
    address: Annotated[
        str, typer.Option("--address", metavar="URL", help="Ray's job server: http://HEAD:8265.")
    ],
    overrides: Overrides = None,
    dry_run: DryRun = False,
    keep_alive: KeepAlive = False,
) -> None:
    """Run as a job of a Ray cluster.

    Follows the job and ends with its exit status.

    DIR, and the folder of a corpus, are folders on the cluster that all its nodes see. The job's python is the
    first on the PATH that the cluster's Ray was started with. For a cluster with token authentication, the token is
    read from RAY_AUTH_TOKEN or the file RAY_AUTH_TOKEN_PATH. While the job runs, the same command follows it.

    \b
    permcode submit --recipe demo --out /shared/runs/demo --address http://head:8265
    """
    with exit_codes(out, only_shows=dry_run):
        from pipeline.folder.recipe import load_run_config

        refuse_url(out)
        given = load_run_config(recipe, overrides or [])

        from cluster.keep_alive import keep_alive as try_again
        from pipeline.run.dry_run import submit_dry_run_lines
        from pipeline.run.submit import config_for_cluster, submit_run

        config = config_for_cluster(given)
        reporter = Reporter()
        if dry_run:
            for line in submit_dry_run_lines(config, out, address):
                reporter.line(line)
            return
        if keep_alive:
            raise typer.Exit(try_again(lambda: submit_run(config, out, address, reporter), reporter))
        raise typer.Exit(submit_run(config, out, address, reporter))


def _keep_alive(
    command: str, recipe: str, out: Path, overrides: list[str] | None, accept: list[str] | None = None
) -> NoReturn:
    """Run the command in processes of its own, one after the other, and end with the last one's exit status."""
    with exit_codes(out):
        from cluster.keep_alive import keep_alive, run_child

        accepted = [word for key in accept or [] for word in ("--accept", key)]
        arguments = [command, "--recipe", recipe, "--out", str(out), *accepted, "--", *(overrides or [])]
        raise typer.Exit(keep_alive(lambda: run_child(arguments), Reporter()))
    raise AssertionError


def _run_until(
    targets: list[str] | None,
    recipe: str,
    out: Path,
    overrides: list[str] | None,
    dry_run: bool,
    accept: list[str] | None = None,
) -> None:
    """Run the stages `targets` and what they need; None stands for all tasks of the run."""
    with exit_codes(out, only_shows=dry_run):
        from pipeline.folder.recipe import load_run_config

        check_place(out)
        config = load_run_config(recipe, overrides or [])

        from pipeline.folder.accepted_changes import accepted_keys
        from pipeline.run.dry_run import dry_run_lines
        from pipeline.run.run import run_pipeline

        accepted = accepted_keys(accept or [])
        wanted = list(config.finetune) if targets is None else targets
        if not wanted:
            raise UserError(
                f"recipe {recipe} has no tasks: add some under `finetune:`, or finetune a run's model with --from RUN"
            )
        if not dry_run:
            run_pipeline(config, out, wanted, Reporter, accepted)
            return
        reporter = Reporter()
        for line in dry_run_lines(config, out, wanted, accepted):
            reporter.line(line)
