"""The batch scripts that are printed: clean for shellcheck, with the recipe and the paths unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.folder.recipe import load_run_config

_BIN = Path(sys.executable).parent
ODD = 'it\'s $HOME `x` "q" \\n'


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["slurm", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def values(script: str, *names: str) -> list[str]:
    """What the shell reads from the script's first part."""
    begin = script.split("\n# Below this line")[0]
    show = "".join(f'printf "%s\\0" "${name}"; ' for name in names)
    done = subprocess.run(["bash", "-c", f"{begin}\n{show}"], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("out", ["/shared/runs/one", f"/shared/{ODD}/run"])
@pytest.mark.parametrize("extra", [("--gpus-per-node", "1"), ("--prep",), ()])
def test_shellcheck_has_nothing_to_say(tmp_path: Path, out: str, extra: tuple[str, ...]) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(printed("--recipe", "smoke", "--out", out, "--nodes", "2", *extra))
    done = subprocess.run([_BIN / "shellcheck", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_recipe_and_paths_arrive_unchanged() -> None:
    path = f"prep.source.path=/data/{ODD}\nEND_OF_RECIPE\n"
    script = printed("--recipe", "smoke", "--out", f"/shared/{ODD}/run", "--nodes", "3", path)
    recipe, out, python, command = values(script, "recipe", "out", "python", "command")
    assert yaml.safe_load(recipe) == load_run_config("smoke", [path]).model_dump(mode="json")
    assert (out, python, command) == (f"/shared/{ODD}/run", sys.executable, "run")


def test_every_gpu_gets_a_worker() -> None:
    arguments = ("--recipe", "base", "--out", "/shared/run", "--nodes", "2", "--gpus-per-node", "4")
    config = yaml.safe_load(values(printed(*arguments), "recipe")[0])
    assert config["pretrain"]["num_workers"] == 8
    assert config["resources"]["pretrain"]["device"] == "gpu"
    config = yaml.safe_load(values(printed(*arguments, "pretrain.num_workers=4"), "recipe")[0])
    assert config["pretrain"]["num_workers"] == 4


def test_slurm_gets_the_size_the_signal_and_the_leave_to_requeue() -> None:
    lines = printed("--recipe", "base", "--out", "/r", "--nodes", "2", "--gpus-per-node", "4").splitlines()
    wanted = ("--nodes=2", "--gpus-per-node=4", "--requeue", "--signal=B:USR1@300", "--open-mode=append")
    assert {f"#SBATCH {option}" for option in wanted} <= set(lines)
    prep = printed("--recipe", "base", "--out", "/r", "--nodes", "4", "--prep").splitlines()
    assert {"#SBATCH --array=0-3", "#SBATCH --nodes=1", "command=prep"} <= set(prep)
    assert not any("gpus-per-node=" in line and line.startswith("#SBATCH") for line in prep)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "3", "--gpus-per-node", "7"), "3 nodes of 7 GPUs have a worker per GPU"),
        (("--nodes", "2", "--gpus-per-node", "1", "--prep"), "--prep needs no GPUs"),
        (("--nodes", "0"), "--nodes"),
        (("--nodes", "2", "--out", "s3://bucket/run"), "s3://bucket/run"),
        (("--nodes", "2", "--out", "/a\nb"), "control character"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(
        app,
        ["slurm", "--recipe", "smoke", "--out", "/shared/run", *arguments],
        env={**os.environ, "COLUMNS": "200"},
    )
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
