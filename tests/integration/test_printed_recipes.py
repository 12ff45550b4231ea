"""The command in every recipe's header works as it is printed: with --dry-run, which reads data and builds systems.

Folders hold a few items under the names that the published sets have.
"""

import gzip
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from finetune.tasks.humaneval_infilling import FILE_NAMES
from pipeline.cli import app
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus
from tests.integration.printed_commands import RECIPES, printed_commands

_SPLITS = ("train", "valid", "test")
_METHOD = "public int add%d ( int a , int b ) { if ( a > b && b != %d ) { return a + %d ; } return a - b ; }"
_PYTHON = 'def add_%d(value):\n    """Adds %d to what it is given."""\n    total = max(value, %d)\n    return total\n'
_CLASS = 'public class N%d {\n    /** Adds. */\n    int at(int number) { return number + %d + "none".length(); }\n}\n'


def _lines(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts))


def _records(path: Path, records: Sequence[object]) -> None:
    _lines(path, [json.dumps(record) for record in records])


def _translation(folder: Path) -> None:
    for number, split in enumerate(_SPLITS):
        for side in ("java", "cs"):
            texts = [_METHOD % (k, k, k) for k in range(40 * number, 40 * number + 40)]
            _lines(folder / f"{split}.java-cs.txt.{side}", [text.replace("int", side) for text in texts])


def _refinement(folder: Path) -> None:
    for split in _SPLITS:
        for side in ("buggy", "fixed"):
            _lines(folder / f"{split}.buggy-fixed.{side}", [f"void {side} {k} ( ) {{ }}" for k in range(9)])


def _cosqa(folder: Path) -> None:
    codes = {_PYTHON % (k, k, k): k for k in range(12)}
    (folder / "code_idx_map.txt").write_text(json.dumps(codes))
    for split in ("dev", "test"):
        items = [{"idx": f"q{k}", "doc": f"add {k}", "retrieval_idx": k} for k in range(6)]
        (folder / f"cosqa-retrieval-{split}-500.json").write_text(json.dumps(items))


def _devign(folder: Path) -> None:
    for split in _SPLITS:
        _records(
            folder / f"{split}.jsonl",
            [{"func": f"int f{split}{k}() {{}}", "target": k % 2} for k in range(9)],
        )


def _concode(folder: Path) -> None:
    for split in ("train", "dev"):
        _records(
            folder / f"{split}.json", [{"nl": f"adds {k}", "code": f"int {split} {k} ;"} for k in range(30)]
        )


def _problems(folder: Path) -> None:
    items = [{"label": f"p{k % 10}", "code": f"int main() {{ return {k}; }}"} for k in range(40)]
    _records(folder / "programs.jsonl", items)


def _completions(folder: Path, name: str, item: dict[str, str]) -> None:
    _records(folder / name, [item] * 5)
    (folder / "literals.json").write_text('{"str": ["none"], "num": ["0", "1"], "char": ["a"]}')


def _holes(folder: Path) -> None:
    row = {
        "task_id": "L0",
        "entry_point": "f",
        "prompt": "def f(x):\n",
        "canonical_solution": "    x += 1\n",
        "suffix": "    return x\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
    }
    for kind, name in FILE_NAMES.items():
        (folder / name).write_bytes(gzip.compress(json.dumps(row | {"task_id": kind}).encode()))


_FOLDERS: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(("clones_java_cs", "conba_java_cs", "search_java_cs", "translate_java_cs"), _translation),
    "clones_problems": _problems,
    "defects": _devign,
    "generate_java": _concode,
    "humaneval_infilling": _holes,
    "lines_java": lambda folder: _completions(
        folder, "dev.first1500.json", {"input": "<s> class A { int x", "gt": "= <NUM_LIT:0> ;"}
    ),
    "lines_py150": lambda folder: _completions(
        folder, "dev.first1000.json", {"input": "<s> x = <NUM_LIT:0> <EOL> y", "gt": "= x"}
    ),
    "repair_java": _refinement,
    "search_cosqa": _cosqa,
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as far as an experiment looks at it, on Python and Java code."""
    run = tmp_path_factory.mktemp("run")
    modules = {"train": ["string"], "validation": ["argparse", "textwrap"], "test": ["statistics", "tarfile"]}
    java = {"train": range(2), "validation": range(2, 14), "test": range(14, 20)}
    splits = {
        split: {
            **stdlib_packages(modules[split]),
            **{f"max{k}": {f"max{k}.py": _PYTHON % (k, k, k) * 3} for k in java[split]},
            **{f"java{k}": {f"N{k}.java": _CLASS % (k, k)} for k in java[split]},
        }
        for split in modules
    }
    corpus = write_corpus(run / "prep-0123456789ab", splits)
    network = tiny_model(corpus.tokenizer.vocab_size)
    save_model(network, run / "pretrain-0123456789ab/model", corpus.folder / "tokenizer.json")
    return run


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_command_of_a_recipe_s_header_works(
    recipe: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Path(recipe).stem
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    (folder / "package").mkdir(parents=True)
    (folder / "package/code.py").write_text("x = 1\n")
    (folder / "corpus.jsonl").write_text('{"text": "x", "path": "a", "repo": "b", "language": "Java"}\n')
    _FOLDERS.get(name, lambda _: None)(folder)
    values = {
        "RUN": str(run_folder),
        "DIR": "out",
        "FOLDER": str(folder),
        "[FILE]": f"[{folder}/corpus.jsonl]",
    }
    (command, *others) = [one for one in printed_commands(recipe) if f"--recipe {name} " in one.text][-1:]
    assert others == []
    words = [values.get(word, word) for word in re.split(r"(?<==)|\s", command.text)]
    line = re.sub(r"= ", "=", " ".join(words))
    assert not re.search(r"\b(RUN|DIR|FOLDER|FILE)\b", line), line
    done = CliRunner().invoke(app, [*shlex.split(line)[1:], "--dry-run"])
    assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
    assert not (tmp_path / "out").exists()
