"""The commands and their options, frozen: each new one is a decision that this file's change makes visible."""

import subprocess
import sys
from importlib.metadata import version

import pytest
import typer
from typer.testing import CliRunner

from pipeline.cli import COMMANDS, ENTRIES, app

# Without --help; arguments in capitals or brackets, options with dashes.
FROZEN = {
    "run": "--recipe -r | --out -o | [KEY=VALUE]... | --dry-run | --accept | --keep-alive",
    "prep": "--recipe -r | --out -o | [KEY=VALUE]... | --dry-run | --keep-alive",
    "pretrain": "--recipe -r | --out -o | [KEY=VALUE]... | --dry-run | --accept | --keep-alive",
    "finetune": "--recipe -r | --out -o | [KEY=VALUE]... | --from | --seeds | --dry-run",
    "report": "--recipe -r | --out -o | [KEY=VALUE]... | --dry-run",
    "status": "RUN | --json",
    "audit": "RUN | --read | --json",
    "inspect": "FOLDER | --sample | --document | --verify",
    "trace": "FOLDER | --token | --split | --step | --lane | --offset",
    "forget": "FOLDER | --repo | --path | --dry-run",
    "complete": "RUN | PROMPT | --file -f | --max-tokens | --temperature | --top-k | --top-p"
    " | --beam | --num -n | --seed | --stop | --until-line | --echo | --task",
    "infill": "RUN | FILE | --at | --length | --max-tokens | --temperature | --top-k"
    " | --top-p | --beam | --num -n | --seed | --order | --at-once | --whole | --json | --task",
    "score": "RUN | FILE... | --lines | --bytes | --per-token | --json | --task",
    "scan": "RUN | FILE... | --false-alarms | --top | --fast | --format | --corpus | --task",
    "embed": "RUN | FILE... | --out -o | --task",
    "playground": "RUN | --task | --host | --port",
    "import": "DIR | --out -o | --from | --memory-tokens",
    "export": "RUN | DIR | --to",
    "predict": "SYSTEM | --input -i | --output -o | [KEY=VALUE]... | --task",
    "evaluate": "SYSTEM | [KEY=VALUE]... | --prep | --all | --output -o | --task",
    "leaderboard": "FOLDER... | --html",
    "serve": "FOLDER_OR_URI | --task | --host | --port | --editor",
    "plan": "--recipe -r | [KEY=VALUE]... | --tokens | --gpu | --gpus | --mfu | --price",
    "submit": "--recipe -r | --out -o | --address | [KEY=VALUE]... | --dry-run | --keep-alive",
    "jobs": "--address",
    "logs": "JOB | --address | --follow -f",
    "stop": "JOB | --address",
    "slurm": "--recipe -r | --out -o | --nodes | --gpus-per-node | [KEY=VALUE]... | --prep",
    "kuberay": "--recipe -r | --out -o | --nodes | --image | --volume-claim | --gpus-per-node | [KEY=VALUE]..."
    " | --min-nodes | --cpus-per-node | --memory-per-node",
    "doctor": "--out -o | --build",
}


def shown(name: str) -> str:
    """The parameters of a command, as `FROZEN` writes them."""
    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    return " | ".join(
        " ".join(one.opts) if one.param_type_name == "option" else one.metavar for one in command.params
    )


def test_commands_are_those_that_were_decided_on() -> None:
    assert list(ENTRIES) == list(FROZEN)


@pytest.mark.parametrize("name", FROZEN)
def test_options_are_those_that_were_decided_on(name: str) -> None:
    assert shown(name) == FROZEN[name]


def test_help_lists_every_command_in_its_group() -> None:
    text = CliRunner().invoke(app, ["--help"], prog_name="permcode").stdout
    for group, entries in COMMANDS.items():
        _, section = text.split(f"\n{group}:\n")
        lines = section.split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in lines] == list(entries)
        assert [line.split(maxsplit=1)[1] for line in lines] == [one.summary for one in entries.values()]


def test_version_names_the_environment() -> None:
    lines = CliRunner().invoke(app, ["--version"]).stdout.splitlines()
    assert lines[0] == f"permcode {version('permcode')}"
    assert lines[1].startswith(f"Python {sys.version.split()[0]}")
    for package in ("torch", "deepspeed", "ray", "mlflow"):
        assert f"{package} {version(package)}" in lines


def test_the_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from pipeline.cli import main; main()"],
            env={
                "PATH": "/usr/bin:/bin",
                "_PERMCODE_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split()) - 1),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert completed("permcode sta") == ["status"]
    assert completed("permcode status --js") == ["--json"]


def test_a_mistyped_command_is_corrected() -> None:
    done = CliRunner().invoke(app, ["stauts"])
    assert done.exit_code == 2
    assert "Did you mean 'status'?" in done.output
