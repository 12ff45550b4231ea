"""The folder in which the printed commands are given: small runs under the names that the pages use."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from data_prep.tokenizer import CodeTokenizer
from pretrain.weights import save_model
from tests.example_corpus import tiny_model
from tests.integration.printed_commands import ROOT

# What of the recipes is made smaller; everything else is theirs.
_SMALL_DEMO: dict[str, Any] = {
    "prep.source": {"kind": "directory", "path": "corpus"},
    "prep.split.validation_share": 0.2,
    "prep.split.test_share": 0.2,
    "prep.tokenizer.vocab_size": 512,
    "prep.tokenizer.sample_bytes": 500_000,
    "prep.block_tokens": 16_384,
    "prep.shard_tokens": 65_536,
    "pretrain.model.num_layers": 1,
    "pretrain.model.model_dim": 32,
    "pretrain.model.num_heads": 2,
    "pretrain.model.head_dim": 16,
    "pretrain.model.ffn_dim": 64,
    "pretrain.model.memory_tokens": 32,
    "pretrain.schedule.warmup_steps": 1,
    "pretrain.validation": {"every_steps": 4, "during_tokens": 512, "final_tokens": 1024},
    "pretrain.checkpoint.every_steps": 4,
    "pretrain.num_steps": 4,
    "pretrain.num_workers": 1,
    "pretrain.lanes": 4,
    "pretrain.micro_batch_lanes": 4,
    # One task shows what the commands do with it.
    "finetune.completion": None,
    "finetune.search.task.max_test": 20,
    "finetune.search.training": {
        "steps": 2,
        "warmup_steps": 1,
        "batch_tokens": 384,
        "evaluate_every_steps": 2,
    },
    "tracking": {"register_models": False},
}
_SMALL_SEARCH: dict[str, Any] = {
    "task.max_test": 20,
    "systems.untrained": None,
    "systems.scratch": None,
    "systems.transformer": None,
    "systems.aligned_rnn": None,
    "robustness.transforms": [],
    "training": {"steps": 2, "warmup_steps": 1, "batch_tokens": 384, "evaluate_every_steps": 2},
}
SMALL = {"demo": _SMALL_DEMO, "search_corpus": _SMALL_SEARCH}
_MAIN = (
    "import os\n\n\ndef main(arguments):\n    total = 0\n    for one in arguments:\n        total += int(one)\n"
    + ("    return total\n\n\nif __name__ == '__main__':\n    print(main(os.environ['NUMBERS'].split()))\n")
)
_JAVA = "public class C{n} {{\n{methods}}}\n"
_METHOD = (
    "  /** Adds {k} to what it is given. */\n"
    "  public int add{k}(int value, int other) {{\n"
    "    if (value > other && other != {k}) {{\n      return value + {k};\n    }}\n"
    "    int sum = value - other;\n    return sum + {k};\n  }}\n"
)


def make_world(folder: Path) -> None:
    """The corpus, the small recipes and all files that the pages' commands name."""
    _corpus(folder / "corpus")
    (folder / "recipes").mkdir()
    for name, changes in SMALL.items():
        values = yaml.safe_load((ROOT / f"pipeline/recipes/{name}.yaml").read_text(encoding="utf-8"))
        for dotted, value in changes.items():
            _set(values, dotted.split("."), value)
        (folder / f"recipes/{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    (folder / "src").mkdir()
    (folder / "src/main.py").write_text(_MAIN)
    pair = {"query": "number of items", "candidate": "def size(self): return self.n"}
    line = {"text": _JAVA.format(n=0, methods=""), "path": "a.java", "repo": "a", "language": "Java"}
    (folder / "corpus.jsonl").write_text(json.dumps(line) + "\n")
    for name in ("rows.jsonl", "pairs.jsonl"):
        (folder / name).write_text(json.dumps(pair) + "\n")


def _set(values: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
    values[keys[-1]] = value


def _corpus(folder: Path) -> None:
    """Packages of the standard library, and repositories of Java."""
    library = Path(json.__file__).parents[1]
    for package in ("json", "email", "http", "logging", "unittest", "asyncio", "html", "urllib"):
        shutil.copytree(
            library / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "test*")
        )
    for number in range(8):
        methods = "".join(_METHOD.format(k=100 * number + k) for k in range(20))
        (folder / f"java{number}").mkdir()
        (folder / f"java{number}/C{number}.java").write_text(_JAVA.format(n=number, methods=methods))


def make_runs(folder: Path) -> None:
    """`runs/demo` and `runs/search`, and a post-norm model in `runs/post`, which Hugging Face's XLNet can express."""
    permcode("run --recipe demo --out runs/demo", folder)
    permcode("finetune --recipe search_corpus --from runs/demo --out runs/search", folder)
    shutil.copytree(folder / "runs/demo", folder / "runs/copy")
    (tokenizer,) = folder.glob("runs/demo/prep-*/tokenizer.json")
    network = tiny_model(CodeTokenizer.load(tokenizer).vocab_size)
    save_model(network, folder / "runs/post", tokenizer)


def permcode(line: str, folder: Path) -> None:
    """In a process of its own, where shared state of Ray and MLflow hurts nobody."""
    words = with_small_recipes(shlex.split(line), folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pipeline.cli", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=500, check=False
    )
    assert done.returncode == 0, f"{line}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


def with_small_recipes(words: list[str], folder: Path) -> list[str]:
    """The command with the small versions of its recipe, where there is one."""
    small = {name: str(folder / f"recipes/{name}.yaml") for name in SMALL}
    return [
        small.get(word, word) if before in ("--recipe", "-r") else word
        for before, word in zip(["", *words], words, strict=False)
    ]
