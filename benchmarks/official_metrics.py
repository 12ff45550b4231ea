"""Run CodeXGLUE's own evaluators on the pairs of tests/unit/finetune/metrics/official.json.

    python3 -m venv .venv-official && .venv-official/bin/pip install -r benchmarks/official_metrics.txt
    git clone https://github.com/microsoft/CodeXGLUE && git -C CodeXGLUE checkout ac74a62
    python -m benchmarks.official_metrics CodeXGLUE --python .venv-official/bin/python

runs every evaluator unchanged, on files in its own format, and writes its figures next to the pairs in official.json,
where `test_official.py` compares our metrics with them. The pairs are ours; no data of CodeXGLUE's is kept.

    ... --translation FOLDER --refinement FOLDER

does the same for the naive copy of the test splits of CodeXGLUE's translation and refinement (small) sets, of which
only the figures are kept, and

    ... --predictions RUN/translation-KEY/SYSTEM/seed-0/predictions.jsonl --language c_sharp

prints the official CodeBLEU of a system's predictions: the only figure that may be compared with published ones.

The evaluator of CodeBLEU compares sets whose order depends on Python's hash seed: it is run with ten seeds, and the
lowest and the highest value are kept.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAIRS = Path("tests/unit/finetune/metrics/official.json")
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_CODEBLEU_PARTS = ("ngram match", "weighted ngram match", "syntax_match", "dataflow_match")
_HASH_SEEDS = range(10)
_CODEBLEU = "Code-Code/code-to-code-trans/evaluator/CodeBLEU"


class Official:
    """The evaluators of a checkout, run by a Python that has their dependencies."""

    def __init__(self, checkout: Path, python: Path) -> None:
        # Not resolved: a virtual environment's Python is a link.
        self._checkout, self._python = checkout.resolve(), python.absolute()

    def run(
        self, script: str, arguments: Sequence[str | Path], stdin: str | None = None, hash_seed: int = 0
    ) -> str:
        """Run an evaluator in its own folder, where it finds its files; return its stdout and stderr together."""
        path = self._checkout / script
        done = subprocess.run(
            [self._python, path.name, *arguments],
            cwd=path.parent,
            input=stdin,
            env={"PYTHONHASHSEED": str(hash_seed), "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{script} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def codebleu(self, references: Path, predictions: Path, language: str) -> dict[str, list[float]]:
        """Return CodeBLEU and its four parts, in [0, 1]: [lowest, highest] over the hash seeds."""
        printed = [
            self.run(
                f"{_CODEBLEU}/calc_code_bleu.py",
                ["--refs", references, "--hyp", predictions, "--lang", language],
                hash_seed=seed,
            )
            for seed in _HASH_SEEDS
        ]
        found: dict[str, list[float]] = {}
        for name in (*_CODEBLEU_PARTS, "CodeBLEU score"):
            values = [_number(rf"(?:^|, ){name}: +{_NUMBER}", one) for one in printed]
            found[name] = [min(values), max(values)]
        return found


def evaluate_officially(
    official: Official, kind: str, references: Any, predictions: Any, folder: Path
) -> dict[str, Any]:
    """Return the figures that the evaluator of this kind of set prints, by name."""
    gold, given = folder / "references", folder / "predictions"
    if kind.startswith("codebleu_"):
        _write(gold, references)
        _write(given, predictions)
        return dict(official.codebleu(gold, given, kind.removeprefix("codebleu_")))
    if kind == "summaries":
        _write(gold, [f"{number}\t{text}" for number, text in enumerate(references)])
        rows = [f"{number}\t{text}" for number, text in enumerate(predictions)]
        printed = official.run("Code-Text/code-to-text/evaluator/evaluator.py", [gold], stdin="\n".join(rows))
        return {"bleu": _number(rf"^{_NUMBER}$", printed)}
    script, flags, patterns = _EVALUATORS[kind]
    if kind in ("search", "programs"):
        name, key = ("url", "idx") if kind == "search" else ("index", "answers")
        _write(gold, [json.dumps({name: query, key: answer}) for query, answer in references.items()])
        _write(given, [json.dumps({name: query, "answers": ranked}) for query, ranked in predictions.items()])
    elif kind == "clone_pairs":
        for path, labels in ((gold, references), (given, predictions)):
            _write(path, [f"a{number} b{number} {label}" for number, label in enumerate(labels)])
    elif kind == "defects":
        _write(
            gold, [json.dumps({"idx": number, "target": label}) for number, label in enumerate(references)]
        )
        _write(given, [f"{number}\t{label}" for number, label in enumerate(predictions)])
    elif kind in ("line_completion", "text_to_code"):
        field = "gt" if kind == "line_completion" else "code"
        _write(gold, [json.dumps({field: text}) for text in references])
        _write(given, predictions)
    else:
        _write(gold, references)
        _write(given, predictions)
    printed = official.run(script, [flags[0], gold, flags[1], given])
    return {figure: _number(pattern, printed) for figure, pattern in patterns.items()}


_EVALUATORS: dict[str, tuple[str, tuple[str, str], dict[str, str]]] = {
    "translation": (
        "Code-Code/code-to-code-trans/evaluator/evaluator.py",
        ("-ref", "-pre"),
        {"bleu": rf"BLEU: {_NUMBER}", "exact_match": rf"Acc: {_NUMBER}"},
    ),
    "text_to_code": (
        "Text-Code/text-to-code/evaluator/evaluator.py",
        ("-a", "-p"),
        {"bleu": rf"BLEU: {_NUMBER}", "exact_match": rf"EM: {_NUMBER}"},
    ),
    "line_completion": (
        "Code-Code/CodeCompletion-line/evaluator/evaluator.py",
        ("-a", "-p"),
        {"edit_similarity": rf"Edit sim: {_NUMBER}", "exact_match": rf"EM: {_NUMBER}"},
    ),
    "token_completion": (
        "Code-Code/CodeCompletion-token/evaluator/evaluator.py",
        ("-a", "-p"),
        {"tokens": rf"Total {_NUMBER} tokens", "accuracy": rf"accuracy: {_NUMBER}"},
    ),
    "search": (
        "Text-Code/NL-code-search-Adv/evaluator/evaluator.py",
        ("-a", "-p"),
        {"mrr": rf"MRR'.*?{_NUMBER}\D*$"},
    ),
    "programs": (
        "Code-Code/Clone-detection-POJ-104/evaluator/evaluator.py",
        ("-a", "-p"),
        {"map_at_r": rf"MAP@R'.*?{_NUMBER}\D*$"},
    ),
    "clone_pairs": (
        "Code-Code/Clone-detection-BigCloneBench/evaluator/evaluator.py",
        ("-a", "-p"),
        {name.lower(): rf"'{name}': (?:np\.float64\()?{_NUMBER}" for name in ("Recall", "Precision", "F1")},
    ),
    "defects": (
        "Code-Code/Defect-detection/evaluator/evaluator.py",
        ("-a", "-p"),
        {"accuracy": rf"'Acc': (?:np\.float64\()?{_NUMBER}"},
    ),
}
"""By kind of set: the evaluator, its flags for references and predictions, and the patterns of its figures."""


def naive_copies(official: Official, translation: Path, refinement: Path) -> dict[str, Any]:
    """Return the evaluators' figures if every source is given as its own translation or repair."""
    sides = [(translation, f"test.java-cs.txt.{side}") for side in ("java", "cs")]
    pairs = {
        "java_to_cs": (*sides, "c_sharp"),
        "cs_to_java": (*sides[::-1], "java"),
        "repair": (
            (refinement, "test.buggy-fixed.buggy"),
            (refinement, "test.buggy-fixed.fixed"),
            "java",
        ),
    }
    script, flags, patterns = _EVALUATORS["translation"]
    found: dict[str, Any] = {}
    for name, (source, target, language) in pairs.items():
        written, references = ((folder / file).resolve() for folder, file in (source, target))
        printed = official.run(script, [flags[0], references, flags[1], written])
        found[name] = {figure: _number(pattern, printed) for figure, pattern in patterns.items()}
        if name != "repair":
            found[name]["codebleu"] = official.codebleu(references, written, language)
        print(name, found[name])
    return found


def print_codebleu(official: Official, predictions: Path, language: str) -> None:
    """Print the CodeBLEU of predictions as `permcode finetune` and `permcode evaluate --output` write them."""
    rows = [json.loads(line) for line in predictions.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        references, written = Path(folder) / "references", Path(folder) / "predictions"
        _write(references, [" ".join(row["references"][0].split("\n")) for row in rows])
        _write(written, [" ".join(row["written"].split("\n")) for row in rows])
        for name, (low, high) in official.codebleu(references, written, language).items():
            print(f"{name:22} {low:.4f} to {high:.4f}")


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _number(pattern: str, printed: str) -> float:
    found = re.search(pattern, printed, re.MULTILINE)
    if found is None:
        raise SystemExit(f"no {pattern} in what was printed:\n{printed}")
    return float(found.group(1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--translation", type=Path)
    parser.add_argument("--refinement", type=Path)
    parser.add_argument("--predictions", type=Path)
    parser.add_argument("--language", default="c_sharp", choices=["java", "c_sharp", "python"])
    arguments = parser.parse_args()
    if (arguments.translation is None) != (arguments.refinement is None):
        parser.error("--translation and --refinement belong together: the naive copies are of both sets")
    official = Official(arguments.checkout, arguments.python)
    if arguments.predictions is not None:
        print_codebleu(official, arguments.predictions, arguments.language)
        return
    kept = json.loads(PAIRS.read_text(encoding="utf-8"))
    for kind, one in kept["sets"].items():
        with tempfile.TemporaryDirectory() as folder:
            one["printed"] = evaluate_officially(
                official, kind, one["references"], one["predictions"], Path(folder)
            )
        print(kind, one["printed"])
    if arguments.translation is not None and arguments.refinement is not None:
        kept["naive_copies"] = naive_copies(official, arguments.translation, arguments.refinement)
    PAIRS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
