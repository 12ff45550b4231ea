"""The command line `permcode`. The module of a command is imported when the command is called."""

import platform
from importlib import import_module, metadata
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from cluster.watch import interrupt_on_sigterm

_HELP = """
Pretrain permutation language models of code, from source trees to tracked finetunes.

A run is a recipe (a YAML file, or the name of one that ships with permcode) plus overrides.
Its stages are prep, pretrain, the tasks it is finetuned on and report; a stage is skipped when its
output exists and nothing it depends on changed. After an interruption the same command resumes
the run.

\b
permcode run --recipe demo --out runs/demo
permcode run --recipe demo --out runs/demo --dry-run
permcode status runs/demo
permcode plan --recipe base
permcode inspect runs/demo
permcode complete runs/demo "def main("
permcode export runs/tiny --to hf exported/tiny
permcode doctor
"""


class Entry(NamedTuple):
    """A command and its summary in `permcode --help`."""

    function: str
    """The module in `pipeline.commands` and its function, MODULE.FUNCTION."""
    summary: str


COMMANDS = {
    "Runs": {
        "run": Entry("run.run", "Run all stages, from source code to the report."),
        "prep": Entry("run.prep", "Prepare the corpus: read, filter, split, tokenise, write shards."),
        "pretrain": Entry("run.pretrain", "Run everything up to the pretrained model."),
        "finetune": Entry("run.finetune", "Train systems on a task and compare them."),
        "report": Entry("run.report", "Write the report of a finished run."),
        "status": Entry("status.status", "Show how far and how fast a run is, alive or dead."),
        "audit": Entry("audit.audit", "Prove which tokens each training step consumed."),
    },
    "Corpus": {
        "inspect": Entry("inspect.inspect", "Show what a prepared corpus holds, or verify it."),
        "trace": Entry("trace.trace", "Find a token's repository, path, line and column."),
        "forget": Entry("forget.forget", "Remove documents from the shards for good."),
    },
    "Model": {
        "complete": Entry("complete.complete", "Continue a prompt from left to right."),
        "infill": Entry("infill.infill", "Fill the holes in a file."),
        "score": Entry("score.score", "Print the exact log-likelihood of files or of parts of one."),
        "scan": Entry("scan.scan", "Find the lines of files that surprise the model."),
        "embed": Entry("embed.embed", "Compute a vector per file, for search."),
        "playground": Entry("playground.playground", "Try a model on a page in the browser."),
        "import": Entry("exchange.import_model", "Convert a model of another library to permcode's format."),
        "export": Entry("exchange.export_model", "Convert a permcode model to another library's format."),
    },
    "Finetuned systems": {
        "predict": Entry("evaluate.predict", "Answer the rows of a file."),
        "evaluate": Entry("evaluate.evaluate", "Evaluate on a task's test split or on another file."),
        "leaderboard": Entry("leaderboard.leaderboard", "Compare all finished experiments by task."),
        "serve": Entry("serve.serve", "Answer HTTP requests with a task's best system."),
    },
    "Cluster and machine": {
        "plan": Entry("plan.plan", "Estimate parameters, memory, time and cost of a run."),
        "submit": Entry("run.submit", "Run as a job of a Ray cluster."),
        "jobs": Entry("jobs.jobs", "List a cluster's jobs with their stage and progress."),
        "logs": Entry("jobs.logs", "Print or follow a job's log."),
        "stop": Entry("jobs.stop", "Stop a job after a checkpoint."),
        "slurm": Entry("schedulers.slurm", "Print a batch script for Slurm."),
        "kuberay": Entry("schedulers.kuberay", "Print a RayJob for KubeRay."),
        "doctor": Entry("doctor.doctor", "Check what a run needs on this machine."),
    },
}
"""All commands by group. A new command or option is a decision: tests/unit/pipeline/test_commands.py lists them."""
ENTRIES = {name: entry for group in COMMANDS.values() for name, entry in group.items()}
_SHOWN_PACKAGES = ("torch", "deepspeed", "ray", "mlflow", "tokenizers", "sentencepiece", "webdataset")


class _Commands(TyperGroup):
    """A group that lists its commands in sections and imports a command when it is called.

    Typer has a private copy of Click, hence the arguments without a type.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(ENTRIES, TyperCommand(None))
        """Typer reads the names for its suggestions from here."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in ENTRIES:
            return None
        module, function = ENTRIES[cmd_name].function.split(".")
        command = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        command.command(cmd_name)(getattr(import_module(f"pipeline.commands.{module}"), function))
        return get_command(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, ENTRIES))
        for group, entries in COMMANDS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), entry.summary) for name, entry in entries.items()])


app = typer.Typer(
    cls=_Commands,
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if not is_requested:
        return
    print(f"permcode {metadata.version('permcode')}")
    print(f"Python {platform.python_version()}, {platform.platform()}")
    for name in _SHOWN_PACKAGES:
        print(f"{name} {metadata.version(name)}")
    raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of permcode, Python and the main packages.",
        ),
    ] = False,
) -> None:
    """Define the options of the program itself; its help text is that of `app`."""


def main() -> None:
    """Run the console script."""
    interrupt_on_sigterm()
    app(prog_name="permcode")


if __name__ == "__main__":
    main()
