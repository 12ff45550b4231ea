"""The figures of a run by their labels, out of every place that shows them, as the text that a reader sees."""

import html
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from cluster.reporter import count_text
from tests.integration.smoke_run import only

_TASKS = {"completion": "accuracy", "search": "mrr"}
_LABEL_CHARS = 24
_IN_PRETRAIN = {
    "final validation": ("validation.model_bits_per_byte", "{:.3f} bits per byte"),
    "validation in training": ("validation_in_training.bits_per_byte", "{:.3f} bits per byte"),
    "speed of steps": ("tokens_per_s_median", "tokens/s"),
    "overall speed": ("tokens_per_s_overall", "tokens/s"),
    "goodput of pretraining": ("goodput.share", "{:.1%}"),
}
"""By label: MLflow's metric in the run of the stage, and how it is written."""


def figures_in_table(printed: str) -> dict[str, str]:
    """Of the table that a command ends with."""
    found: dict[str, str] = {}
    label = ""
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.split("│")]
        if len(cells) == 3:
            label = cells[0] or label
            found[label] = f"{found.get(label, '')} {cells[1]}".strip()
    return found


def figures_in_status(printed: str) -> dict[str, str]:
    """A value ends at its semicolon; the line of goodput goes on with "of"."""
    lines = (line for line in printed.splitlines()[1:] if not line.startswith(" "))
    found = {line[:_LABEL_CHARS].strip(): line[_LABEL_CHARS:].partition(";")[0] for line in lines}
    return {label: value.partition(" of ")[0] for label, value in found.items() if label in _IN_PRETRAIN}


def figures_in_report(page: str) -> dict[str, str]:
    """Of the cards at its top."""
    cards = re.findall(r'<div class="label">(.*?)</div>\s*<div class="value[^"]*">(.*?)</div>', page)
    return {html.unescape(label): html.unescape(value) for label, value in cards}


def figures_in_mlflow(out: Path) -> dict[str, str]:
    """From the database."""
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        query = "select name, key, value from latest_metrics natural join runs"
        values = {(run, key): value for run, key, value in store.execute(query)}
        assert (
            values["pretrain", "validation_bits_per_byte"]
            == values["pretrain", "validation_in_training.bits_per_byte"]
        ), "the curve ends with the last validation in training"
        assert values["pretrain", "loss"] == values["pretrain", "final_loss"]
    found = {label: _text(values["pretrain", key], how) for label, (key, how) in _IN_PRETRAIN.items()}
    for task, metric in _TASKS.items():
        found[f"{task}: {metric}"] = f"{values[task, 'systems.pretrained.headline']:.4g}"
    return found


def figures_in_results(out: Path) -> dict[str, str]:
    """From the stages' result.json."""
    result = json.loads((only(out, "pretrain-*") / "result.json").read_text())
    found = {"final validation": f"{result['validation']['model_bits_per_byte']:.3f} bits per byte"}
    for task, metric in _TASKS.items():
        systems = json.loads((only(out, f"{task}-*") / "result.json").read_text())["systems"]
        found[f"{task}: {metric}"] = f"{systems['pretrained']['metrics'][metric]['value']:.4g}"
    return found


def _text(value: float, how: str) -> str:
    return f"{count_text(value)} tokens/s" if how == "tokens/s" else how.format(value)
