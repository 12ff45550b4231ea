"""What people get wrong at first: one line that says what would be right, before anything heavy is imported."""

import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.errors import UserError
from finetune.experiment.config import ExperimentConfig
from pipeline.cli import app
from pipeline.commands.serve import announce
from pipeline.folder.config import RunConfig
from pipeline.folder.experiment_config import ExperimentRunConfig
from pipeline.folder.recipe import load_run_config
from pipeline.folder.sections import ExperimentSections, RunSections, TaskSections

_ROOT = Path(__file__).parents[4]


def permcode(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refused(*overrides: str, recipe: str = "demo") -> str:
    with pytest.raises(UserError) as caught:
        load_run_config(recipe, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_key_of_another_kind_of_source_says_which_kinds_have_it() -> None:
    assert refused("prep.source.path=/code") == (
        "config: unknown key prep.source.path = '/code': prep.source is of the kind installed_python, which has no "
        "such key; directory, git have one: give prep.source.kind=directory as well"
    )
    assert "archives, jsonl, parquet have one: give prep.source.kind=archives" in refused(
        "prep.source.urls=x"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("prep.source.kind=direktory",),
            "prep.source.kind = 'direktory': did you mean directory? must be one of",
        ),
        (
            ("prep.source={path: /x}",),
            "prep.source.kind is missing: give one of installed_python, directory, git",
        ),
        (
            ("prep.source=/x",),
            "prep.source = '/x': must be keys and values: give prep.source.kind=KIND with one of",
        ),
        (
            ("prep.source.kind=mixture", "prep.source.parts.a.path=/x"),
            "prep.source.parts.a.kind is missing: give one of installed_python, directory, git",
        ),
        (
            ("pretrain.model.positions=rotary",),
            "give pretrain.model.positions.kind=KIND with one of transformer_xl",
        ),
        (("finetune.search.task.kind=text_serch",), "did you mean text_search?"),
        (
            ("pretrain.schedule=cosine",),
            "pretrain.schedule = 'cosine': must be keys and values: kind, peak_learning_rate",
        ),
        (("prep.licences.allow=MIT",), "prep.licences.allow = 'MIT': must be a list, [A, B, ...]"),
        (("pretrain.model.norm=middle",), "pretrain.model.norm = 'middle': must be 'post' or 'pre'"),
    ],
)
def test_unions_and_lists_are_reported_without_pydantic_s_words(
    overrides: tuple[str, ...], message: str
) -> None:
    line = refused(*overrides)
    assert message in line
    for word in ("input tag", "discriminator", "instance of", "dictionary", "tuple", "input should"):
        assert word not in line


def test_one_wrong_seed_is_one_problem() -> None:
    assert refused("seed=-1") == "config: seed = -1: must be greater than or equal to 0"


def test_a_key_given_twice_is_refused() -> None:
    assert (
        refused("seed=1", "pretrain.num_steps=3", "seed=2") == "seed is given twice (1 and 2): give it once"
    )
    assert (
        refused("pretrain={num_steps: 30}", "pretrain.num_steps=40")
        == "pretrain.num_steps is given twice (30 and 40): give it once"
    )
    assert (
        refused("pretrain.schedule={kind: cosine, warmup_steps: 2}", "pretrain={schedule: {warmup_steps: 3}}")
        == "pretrain.schedule.warmup_steps is given twice (2 and 3): give it once"
    )


def test_the_sections_checked_first_have_the_keys_of_the_whole_config() -> None:
    assert set(TaskSections.model_fields) == set(ExperimentConfig.model_fields)
    assert set(RunSections.model_fields) == set(RunConfig.model_fields)
    assert set(ExperimentSections.model_fields) == set(ExperimentRunConfig.model_fields)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--recipe", "dmeo", "--out", "o"),
        ("run", "--recipe", "demo", "--out", "o", "prep.block_token=1"),
        ("run", "--recipe", "demo", "--out", "o", "finetune.search.training.stps=1"),
        ("run", "--recipe", "demo", "--out", "s3://bucket/o"),
        ("finetune", "--recipe", "search_corpus", "--from", "runs/none", "--out", "o", "training.stps=1"),
        ("finetune", "--recipe", "demo", "--from", "runs/none", "--out", "o"),
        ("plan", "--recipe", "demo", "pretrain.num_step=1"),
    ],
)
def test_a_typo_is_reported_before_anything_heavy_is_imported(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """PyTorch's import is seconds; without it a typo costs 0.3 s of a processor."""
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(_ROOT)!r})\n"
        "from pipeline.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*[name for name in ('torch', 'ray', 'mlflow', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (2, "\n"), done.stderr
    assert done.stderr.startswith("permcode: error: ")
    assert done.stderr.count("\n") == 1


def test_a_misspelt_path_of_an_evaluation_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("x = 1\n")
    given = ["prep.source.kind=directory", f"prep.source.path={tmp_path}/code", f"--out={tmp_path}/out"]
    done = permcode(
        "prep", "--recipe=demo", "--dry-run", *given, "prep.decontamination.sets.cosqa.path=/sets/typo.txt"
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "permcode: error: evaluation set cosqa: no file at /sets/typo.txt: correct its path\n"
    )


@pytest.mark.parametrize("command", ["run", "prep", "pretrain", "finetune"])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_an_output_folder_that_cannot_be_is_refused_dry_or_not(
    command: str, dry: tuple[str, ...], corpus: Path, tmp_path: Path
) -> None:
    recipe = ("--recipe", "smoke", f"prep.source.path={corpus}", *dry)
    url = permcode(command, "--out", "s3://bucket/runs/x", *recipe)
    assert (url.exit_code, url.stdout) == (2, "")
    assert "--out s3://bucket/runs/x is a URL" in url.stderr
    (tmp_path / "file").write_text("text")
    below = permcode(command, "--out", str(tmp_path / "file" / "runs" / "x"), *recipe)
    assert (below.exit_code, below.stdout) == (2, "")
    assert f"{tmp_path / 'file'} is a file" in below.stderr


def test_submit_and_an_experiment_refuse_a_url_too(tmp_path: Path) -> None:
    submitted = permcode(
        "submit", "--recipe", "demo", "--out", "s3://b/x", "--address", "http://h:1", "--dry-run"
    )
    tried = permcode(
        "finetune", "--recipe", "search_corpus", "--from", str(tmp_path), "--out", "gs://b/x", "--dry-run"
    )
    for result in (submitted, tried):
        assert (result.exit_code, result.stdout) == (2, "")
        assert "is a URL" in result.stderr


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("/proc/x.html", "--html /proc/x.html cannot be written"),
        ("{here}/none/x.html", "there is no folder {here}/none: create it"),
        ("{here}", "is a folder: give the name of a file"),
    ],
)
def test_a_leaderboard_s_page_that_cannot_be_written_is_reported_before_the_table(
    page: str, message: str, tmp_path: Path
) -> None:
    result = permcode("leaderboard", str(tmp_path), "--html", page.format(here=tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message.format(here=tmp_path) in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_model_is_not_exported_to_where_nothing_can_be(tmp_path: Path) -> None:
    for place, message in (("/proc/x", "cannot be written"), ("s3://b/x", "is a URL")):
        result = permcode("export", str(tmp_path), "--to", "hf", place)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr


def test_serve_prints_its_address_only_when_it_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    watching = announce(address, "permcode-t")
    time.sleep(1.0)  # long enough for several tries
    assert watching.poll() is None
    assert "POST" not in capfd.readouterr().err
    with HTTPServer(("127.0.0.1", port), _Ping) as server:
        server.timeout = 60
        server.handle_request()
        assert watching.wait(timeout=60) == 0
    assert capfd.readouterr().err.endswith(f"permcode-t: POST {address}/invocations\n")


class _Ping(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
