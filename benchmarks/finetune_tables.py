"""Run the finetuning tables of results.md: pretrain the bases and run the experiments, one command after another.

    python -m benchmarks.finetune_tables DATA OUT TABLE [TABLE ...]
    python -m benchmarks.finetune_tables DATA OUT --list

DATA is a folder with CodeXGLUE's and the other public sets (`codexglue-translation/`, `cosqa-retrieval/`, ...), OUT the
folder for the runs. Finished work is skipped, so the same command resumes after an interruption.

Within a table every system has the same data, steps, batches, label smoothing and decoding. Every system that learns is
trained with each of the same learning rates, and the one with the best headline metric on the validation split is
evaluated on the test split (`learning_rates_tried` in its results lists all rates).
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_RATES = (0.0005, 0.001, 0.002)
_TWO_RATES = (0.001, 0.002)
_POOLING_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03)
"""The rates for heads over a fixed encoder; the attention's 256 parameters need a high one."""
_CONBA_RATES = (0.0003, 0.001)
"""The best two of `_POOLING_RATES` for form `seed`; their validation figures differ by less than the noise."""
_PERMCODE = Path(sys.executable).with_name("permcode")


@dataclass(frozen=True)
class Table:
    """An experiment: the base it starts from, its recipe, the folder of its data and the changed settings."""

    base: str
    recipe: str
    folder: str | None
    """The folder below DATA; None for a task whose items come from the base's corpus."""
    changes: tuple[str, ...]
    options: tuple[str, ...] = ()


def _budget(
    steps: int, batch_tokens: int, evaluations: int = 2, rates: Sequence[float] = _RATES
) -> tuple[str, ...]:
    """Return the settings of a training budget; warm-up is a tenth of the steps."""
    return (
        f"training.steps={steps}",
        f"training.batch_tokens={batch_tokens}",
        f"training.warmup_steps={steps // 10}",
        f"training.evaluate_every_steps={steps // evaluations}",
        f"training.learning_rates=[{','.join(map(str, rates))}]",
    )


_TRANSLATION = "codexglue-translation"
TABLES = {
    "translate": Table(
        "java_cs",
        "translate_java_cs",
        _TRANSLATION,
        (*_budget(1000, 1024, 1, _TWO_RATES), "training.valid_items=200"),
    ),
    "translate_back": Table(
        "java_cs",
        "translate_java_cs",
        _TRANSLATION,
        (
            *_budget(1000, 1024, 1, _TWO_RATES),
            "training.valid_items=200",
            "task.source=cs",
            "task.target=java",
        ),
    ),
    "conba": Table(
        "java_cs", "conba_java_cs", _TRANSLATION, _budget(60, 4096, 1, _POOLING_RATES), ("--seeds", "3")
    ),
    "conba_parts": Table(
        "java_cs",
        "conba_java_cs",
        _TRANSLATION,
        (
            *_budget(60, 4096, 1, _CONBA_RATES),
            *(f"systems.{name}=null" for name in ("diagonal", "mlp", "attention", "mean")),
        ),
        ("--seeds", "3"),
    ),
    "search_java_cs": Table("java_cs", "search_java_cs", _TRANSLATION, _budget(150, 4096, 3)),
    "clones_problems": Table(
        "java_cs",
        "clones_problems",
        "programs-of-problems",
        (
            *_budget(100, 4096, 1, _TWO_RATES),
            *(f"task.{split}={split}.jsonl.gz" for split in ("train", "valid", "test")),
            "task.label=problem",
            "task.language=language",
            "task.query_language=java",
            "task.candidate_language=cpp",
            "task.names=all_masked",
        ),
    ),
    "clones_java_cs": Table("java_cs", "clones_java_cs", _TRANSLATION, _budget(400, 2048)),
    "lines": Table(
        "demo", "lines_py150", "codexglue-line-completion/py150", _budget(100, 4096, 1, _TWO_RATES)
    ),
    "infill": Table("demo", "infill_corpus", None, (*_budget(100, 4096, 1, _TWO_RATES), "task.max_test=200")),
    "summaries": Table(
        "demo", "summaries_corpus", None, (*_budget(100, 4096, 1, _TWO_RATES), "task.max_test=200")
    ),
    "generate": Table(
        "demo", "generate_corpus", None, (*_budget(100, 4096, 1, _TWO_RATES), "task.max_test=200")
    ),
    "humaneval": Table("demo", "humaneval", None, _budget(100, 4096, 1, _TWO_RATES)),
    "search": Table("demo", "search_corpus", None, _budget(150, 8192, 3)),
    "tokens": Table("demo", "tokens_corpus", None, _budget(100, 4096, 1, _TWO_RATES)),
    "cloze": Table("demo", "cloze_corpus", None, _budget(150, 4096, 3)),
    "demo_search": Table("demo", "benchmarks/demo_search.yaml", None, ()),
}


def make_java_cs_corpus(data: Path, path: Path) -> None:
    """Write the training split's lines as a corpus, first Java, then C#; every 100 lines form a repository."""
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w", encoding="utf-8") as corpus:
        for side, language in (("java", "Java"), ("cs", "C#")):
            lines = (data / _TRANSLATION / f"train.java-cs.txt.{side}").open(encoding="utf-8", newline="\n")
            for number, line in enumerate(lines):
                part = f"{number // 100:03d}"
                row = {
                    "text": line,
                    "path": f"{part}/{number:05d}.{side}",
                    "repo": f"{side}-{part}",
                    "language": language,
                }
                corpus.write(json.dumps(row) + "\n")
    unfinished.rename(path)


def run(arguments: Sequence[str | Path]) -> None:
    """Print a permcode command and run it; exit with its code if it fails."""
    command = [str(one) for one in (_PERMCODE, *arguments)]
    print(f"$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def pretrain_base(name: str, data: Path, out: Path) -> Path:
    """Pretrain a base, unless it is finished, and return its run folder."""
    folder = out / f"base-{name}"
    if name == "java_cs":
        corpus = out / "java_cs.jsonl"
        if not corpus.exists():
            make_java_cs_corpus(data, corpus)
        test = data / _TRANSLATION / "test.java-cs.txt.*"
        changes = [
            f"prep.source.urls=[{corpus.resolve()}]",
            f"prep.decontamination.sets.translation.path={test}",
        ]
        run(["pretrain", "--recipe", "java_cs", "--out", folder, *changes])
    else:
        sets = "prep.decontamination.sets"
        changes = [
            f"{sets}.cosqa.path={data / 'cosqa-retrieval' / 'code_idx_map.txt'}",
            f"{sets}.py150.path={data / 'codexglue-line-completion' / 'py150' / 'dev.first1000.json'}",
        ]
        run(["pretrain", "--recipe", "demo", "--out", folder, *changes])
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], metavar="TABLE")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or not arguments.tables:
        print("\n".join(f"{name:16} {table.recipe}, base {table.base}" for name, table in TABLES.items()))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = arguments.data.resolve()
    for name in arguments.tables:
        table = TABLES[name]
        base = pretrain_base(table.base, data, arguments.out)
        folder = [f"task.folder={data / table.folder}"] if table.folder else []
        where = ["--recipe", table.recipe, "--from", base, "--out", arguments.out / name]
        run(["finetune", *where, *table.options, *folder, *table.changes])


if __name__ == "__main__":
    main()
