"""The command line. Nothing heavy is imported before a command needs it."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.errors import UserError
from cluster.reporter import Reporter
from pipeline.audit_command import audit
from pipeline.exchange_commands import export_model, import_model
from pipeline.exit_codes import exit_codes
from pipeline.finetuned_commands import evaluate, leaderboard, predict, serve
from pipeline.interrupts import interrupt_on_sigterm
from pipeline.model_commands import complete, embed, infill, score
from pipeline.plan_command import plan
from pipeline.status_command import status

_HELP = """
Pretrain permutation language models of code, from source trees to tracked finetunes.

A run is a recipe (a YAML file, or the name of one that ships with permcode) plus overrides.
Its stages are prep, pretrain, the tasks it is finetuned on and report; each is skipped when its
output is there and nothing it depends on changed. The same command after an interruption goes on
where it stopped.

\b
permcode run --recipe demo --out runs/demo
permcode run --recipe demo --out runs/demo --dry-run
permcode status runs/demo
permcode plan --recipe base
permcode inspect runs/demo
permcode complete runs/demo "def main("
permcode export runs/demo --to hf exported/demo
permcode doctor
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Recipe = Annotated[
    str,
    typer.Option(
        "--recipe", "-r", metavar="NAME_OR_FILE", help="A recipe's name (demo, base) or a YAML file."
    ),
]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="DIR", help="The run's folder; made if missing, resumed if begun."),
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
    typer.Option("--dry-run", help="Print the resolved config and what would run and why; write nothing."),
]


Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="KEY",
        help="Go on with pretraining though this setting was changed, e.g. schedule.peak_learning_rate. Repeatable. "
        "Settings of workers, memory, checkpoints and validation may be changed without it.",
        show_default=False,
    ),
]


@app.command()
def run(
    recipe: Recipe, out: Out, overrides: Overrides = None, dry_run: DryRun = False, accept: Accept = None
) -> None:
    """All stages, from source code to the report.

    \b
    permcode run --recipe demo --out runs/demo
    permcode run --recipe my.yaml --out runs/mine seed=1
    permcode run --recipe demo --out runs/code prep.source.kind=directory prep.source.path=/path/to/code
    """
    _run_until(["report"], recipe, out, overrides, dry_run, accept)


@app.command()
def prep(recipe: Recipe, out: Out, overrides: Overrides = None, dry_run: DryRun = False) -> None:
    """Source code to shards: read, filter, split, tokenise."""
    _run_until(["prep"], recipe, out, overrides, dry_run)


@app.command()
def pretrain(
    recipe: Recipe, out: Out, overrides: Overrides = None, dry_run: DryRun = False, accept: Accept = None
) -> None:
    """Everything up to the pretrained model."""
    _run_until(["pretrain"], recipe, out, overrides, dry_run, accept)


@app.command()
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
            "--seeds", metavar="N", min=1, help="Train every system so many times.", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Train systems on a task and judge them side by side; without --from, a run's own tasks.

    \b
    permcode finetune --recipe translate_java_cs --from runs/java_cs --out runs/translate task.folder=DATA
    permcode finetune --recipe my_task.yaml --from runs/mine --out runs/task --seeds 3
    permcode finetune --recipe demo --out runs/demo
    """
    if model is None:
        with exit_codes(None):
            if seeds is not None:
                raise UserError("--seeds is of an experiment: give the model to finetune with --from RUN")
        _run_until(None, recipe, out, overrides, dry_run)
        return
    with exit_codes(None if dry_run else out):
        from pipeline.accepting import GROWING
        from pipeline.dry_run import stage_lines
        from pipeline.experiment import experiment_stages, run_experiments, survey_lines
        from pipeline.experiment_config import load_experiment

        given = [] if seeds is None else [f"num_seeds={seeds}"]
        config = load_experiment(recipe, model, [*(overrides or []), *given])
        if not dry_run:
            run_experiments(config, out, Reporter)
            return
        for line in [
            *stage_lines(experiment_stages(config), config, out, GROWING),
            "",
            *survey_lines(config),
        ]:
            Reporter().line(line)


@app.command()
def report(recipe: Recipe, out: Out, overrides: Overrides = None, dry_run: DryRun = False) -> None:
    """The report of a finished run; never trains anything."""
    if not dry_run:
        with exit_codes(out):
            from pipeline.recipe import load_run_config
            from pipeline.run import check_report_is_possible

            check_report_is_possible(load_run_config(recipe, overrides or []), out)
    _run_until(["report"], recipe, out, overrides, dry_run)


@app.command()
def submit(
    recipe: Recipe,
    out: Out,
    address: Annotated[
        str, typer.Option("--address", metavar="URL", help="Ray's job server: http://HEAD:8265.")
    ],
    overrides: Overrides = None,
    dry_run: DryRun = False,
) -> None:
    """The same run as a job of a Ray cluster.

    Follows the job and ends with its exit status.

    DIR, and the folder of a corpus, are folders on the cluster that all its nodes see. The job's python is the
    first on the PATH that the cluster's Ray was started with. A cluster with token authentication takes the token
    from RAY_AUTH_TOKEN or the file RAY_AUTH_TOKEN_PATH. Repeated while the job runs, the command follows it.

    \b
    permcode submit --recipe demo --out /shared/runs/demo --address http://head:8265
    """
    with exit_codes(out):
        from pipeline.dry_run import submit_dry_run_lines
        from pipeline.recipe import load_run_config
        from pipeline.submit import config_for_cluster, submit_run

        config = config_for_cluster(load_run_config(recipe, overrides or []))
        reporter = Reporter()
        if dry_run:
            for line in submit_dry_run_lines(config, out, address):
                reporter.line(line)
            return
        raise typer.Exit(submit_run(config, out, address, reporter))


@app.command()
def doctor(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Check the disk of this folder.")
    ] = None,
    build: Annotated[
        bool,
        typer.Option("--build", help="Also compile the CPU extensions now, not in the first run."),
    ] = False,
) -> None:
    """Check what a run needs on this machine.

    One line per check, with the mend; exit code 1 if one fails."""
    with exit_codes(out):
        from cluster.doctor import render, run_checks
        from pretrain.model.fused.preflight import attention_check

        checks = [*run_checks(out, build=build), attention_check(build=build)]
        raise typer.Exit(render(checks, Reporter()))


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A run's --out folder, or a finished prep folder.", show_default=False
    ),
]


@app.command()
def inspect(
    folder: Folder,
    sample: Annotated[int, typer.Option("--sample", min=0, help="How many documents to show.")] = 1,
    document: Annotated[
        str | None, typer.Option("--document", metavar="ID", help="Show only this document, whole.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Check every checksum instead; exit code 2 names the first damage."),
    ] = False,
) -> None:
    """What is in the shards: counts, the longest documents, what was dropped, a sample.

    \b
    permcode inspect runs/demo
    permcode inspect runs/demo --document 0123456789abcdef
    permcode inspect runs/demo --verify
    """
    with exit_codes(None, only_shows=True):
        from pipeline import inspect_view
        from pipeline.prep_folder import find_prep_folder

        prep_folder = find_prep_folder(folder).prep
        if verify:
            inspect_view.verify(prep_folder, Reporter())
        elif document is not None:
            inspect_view.show_document(prep_folder, document, Reporter())
        else:
            inspect_view.inspect_prepared(prep_folder, sample, Reporter())


@app.command()
def trace(
    folder: Folder,
    token: Annotated[
        int | None, typer.Option("--token", metavar="N", help="A position in the split's tokens, from 0.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="The split that --token counts in.")] = "train",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="A step of the run's pretraining, from 0.")
    ] = None,
    lane: Annotated[
        int | None, typer.Option("--lane", metavar="L", help="With --step: the lane of the batch, from 0.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="K", help="With --step: only this token of the segment.")
    ] = None,
) -> None:
    """From a token back to repository, path, line and column.

    \b
    permcode trace runs/demo --token 123456
    permcode trace runs/demo --step 300 --lane 7
    """
    with exit_codes(None, only_shows=True):
        from pipeline.prep_folder import find_prep_folder
        from pipeline.trace_view import step_lines, token_lines

        if (token is None) == (step is None) or (step is None) != (lane is None):
            raise UserError("say which token to trace: --token N, or --step N with --lane L")
        prep_folder = find_prep_folder(folder)
        if token is not None:
            lines = token_lines(prep_folder, split, token)
        else:
            lines = step_lines(prep_folder, step or 0, lane or 0, offset)
        for line in lines:
            Reporter().line(line)


@app.command()
def forget(
    folder: Folder,
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="NAME", help="All documents of this repository.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="GLOB",
            help='All documents whose PATH or REPOSITORY/PATH matches; "*" matches "/" too.',
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be taken out; change nothing.")
    ] = False,
) -> None:
    """Take documents out of the shards, for good.

    Only the tars that held them are written anew. The request is kept in forgotten.json, and later preparations in
    this folder keep to it. Repeated or after a kill the command finishes what is left.

    \b
    permcode forget runs/demo --repo some/project
    permcode forget runs/demo --path "*/secret/*" --dry-run
    """
    with exit_codes(None):
        if (repo is None) == (path is None) or "" in (repo, path):
            raise UserError("say what to forget: --repo NAME or --path GLOB")
        from data_prep.forget_requests import ForgetRequest
        from pipeline.forgetting import forget_documents
        from pipeline.prep_folder import find_prep_folder

        request = ForgetRequest(repository=repo, path=path)
        forget_documents(find_prep_folder(folder), request, dry_run, Reporter())


app.command()(status)
app.command()(plan)
app.command()(audit)
app.command("import")(import_model)
app.command("export")(export_model)
app.command()(predict)
app.command()(evaluate)
app.command()(leaderboard)
app.command()(serve)
app.command()(complete)
app.command()(infill)
app.command()(score)
app.command()(embed)


def main() -> None:
    """The console script."""
    interrupt_on_sigterm()
    app(prog_name="permcode")


def _run_until(
    targets: list[str] | None,
    recipe: str,
    out: Path,
    overrides: list[str] | None,
    dry_run: bool,
    accept: list[str] | None = None,
) -> None:
    """`targets` are stages; None is all of the run's tasks."""
    with exit_codes(out):
        from pipeline.accepting import accepted_keys
        from pipeline.dry_run import dry_run_lines
        from pipeline.recipe import load_run_config
        from pipeline.run import run_pipeline

        config = load_run_config(recipe, overrides or [])
        accepted = accepted_keys(accept or [])
        wanted = list(config.finetune) if targets is None else targets
        if not wanted:
            raise UserError(
                f"recipe {recipe} has no tasks: write some under `finetune:`, or finetune a run's model with --from RUN"
            )
        if not dry_run:
            run_pipeline(config, out, wanted, Reporter, accepted)
            return
        reporter = Reporter()
        for line in dry_run_lines(config, out, wanted, accepted):
            reporter.line(line)


if __name__ == "__main__":
    main()
