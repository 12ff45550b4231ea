"""The command line. Nothing heavy is imported before a command needs it."""

import typer

from cluster.watch import interrupt_on_sigterm
from pipeline.audit_command import audit
from pipeline.corpus_commands import forget, inspect, trace
from pipeline.doctor_command import doctor
from pipeline.exchange_commands import export_model, import_model
from pipeline.finetuned_commands import evaluate, leaderboard, predict, serve
from pipeline.model_commands import complete, embed, infill, score
from pipeline.plan_command import plan
from pipeline.stage_commands import finetune, prep, pretrain, report, run, submit
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
permcode export runs/tiny --to hf exported/tiny
permcode doctor
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for _command in (
    run,
    prep,
    pretrain,
    finetune,
    report,
    submit,
    doctor,
    inspect,
    trace,
    forget,
    status,
    plan,
    audit,
):
    app.command()(_command)
app.command("import")(import_model)
app.command("export")(export_model)
for _of_a_model in (predict, evaluate, leaderboard, serve, complete, infill, score, embed):
    app.command()(_of_a_model)


def main() -> None:
    """The console script."""
    interrupt_on_sigterm()
    app(prog_name="permcode")


if __name__ == "__main__":
    main()
