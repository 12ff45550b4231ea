"""The headline numbers of a run, for its report and as a table for the terminal."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cluster.reporter import count_text, duration_text
from pipeline.folder.layout import RunFiles
from pipeline.folder.stage_record import StageRecord
from pretrain.figures import (
    Figure,
    Validation,
    final_validation,
    goodput_figure,
    overall_speed,
    speed_of_steps,
    validation_in_training,
)

UNIGRAM_GOAL = 0.25
_TABLE_WIDTH_CHARS = 100


@dataclass(frozen=True)
class Fact:
    """One headline number. `is_good` is None where there is no goal."""

    label: str
    value: str
    detail: str
    is_good: bool | None = None

    @property
    def verdict(self) -> str:
        """The value, after "yes" or "NO" where there is a goal."""
        return self.value if self.is_good is None else f"{'yes' if self.is_good else 'NO'}: {self.value}"


def facts(records: Mapping[str, StageRecord]) -> list[Fact]:
    """Return the headline numbers of the finished stages in `records` (by stage name), in the order of the run."""
    makers = {"prep": _prep, "pretrain": _pretrain}
    found = [fact for name, make in makers.items() if name in records for fact in make(records[name].summary)]
    return found + [fact for name, record in tasks(records).items() for fact in _task(name, record.summary)]


def tasks(records: Mapping[str, StageRecord]) -> dict[str, StageRecord]:
    """Return the records of tasks."""
    return {name: record for name, record in records.items() if "systems" in record.summary}


def summary_lines(records: Mapping[str, StageRecord], out: Path, store: str) -> list[str]:
    """Return the table of headline numbers and the paths of the results, as lines for the terminal."""
    table = Table(title=f"permcode: {out}", title_justify="left", show_edge=False, pad_edge=False)
    for column in ("what", "result", "how to read it"):
        table.add_column(column)
    for fact in facts(records):
        table.add_row(fact.label, fact.verdict, fact.detail)
    wall_s = sum(record.wall_s for record in records.values())
    table.add_row("stages", duration_text(wall_s), _stage_times(records))
    text = StringIO()
    Console(file=text, width=_TABLE_WIDTH_CHARS, color_system=None).print(table, markup=False)
    lines = ["", *(line.rstrip() for line in text.getvalue().rstrip().splitlines()), ""]
    if "report" in records:
        lines.append(f"report:  {out / RunFiles.REPORT}")
    return [*lines, f"MLflow:  {mlflow_command(store)}"]


def mlflow_command(store: str) -> str:
    """Return the command line that starts MLflow's user interface for the store."""
    program = Path(sys.executable).parent / "mlflow"
    shown = os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)
    return f"{shown if program.exists() else 'mlflow'} ui --backend-store-uri {store}"


def _stage_times(records: Mapping[str, StageRecord]) -> str:
    times = (
        f"{name} {duration_text(record.wall_s)}{' (after a resume)' if record.resumed else ''}"
        for name, record in records.items()
    )
    return ", ".join(times)


def _prep(summary: Mapping[str, Any]) -> list[Fact]:
    dropped = summary["num_files_listed"] - summary["num_files_kept"]
    tokens = sum(split["num_tokens"] for split in summary["splits"].values())
    return [
        Fact(
            "code read",
            f"{summary['num_files_kept']:,} files, {summary['num_bytes_kept'] / 1e6:.1f} MB",
            f"of {summary['num_files_listed']:,} listed ({summary['num_bytes_listed'] / 1e6:.1f} MB); "
            f"{dropped:,} dropped by a rule, {summary['num_repositories']:,} packages kept",
        ),
        Fact(
            "tokens",
            count_text(tokens),
            f"vocabulary {summary['vocab_size']:,}, {summary['bytes_per_token']:.2f} bytes per token",
        ),
        *_evaluation_sets(summary),
    ]


def _evaluation_sets(summary: Mapping[str, Any]) -> list[Fact]:
    """Return the evaluation sets of the decontamination; [] if an older permcode prepared the corpus."""
    if "evaluation_sets" not in summary:
        return []
    kept_out, missing = (summary["evaluation_sets"][key] for key in ("kept_out", "missing"))
    detail = f"{', '.join(kept_out) or 'none'}; missing: {', '.join(missing) or 'none'}"
    return [Fact("sets kept out", f"{len(kept_out)} of {len(kept_out) + len(missing)}", detail)]


def _pretrain(summary: Mapping[str, Any]) -> list[Fact]:
    validation = summary["validation"]
    model, unigram = validation["model_bits_per_byte"], validation["unigram_bits_per_byte"]
    bigram = validation["bigram_bits_per_byte"]
    beats_unigram = summary["beats_unigram_by"] >= UNIGRAM_GOAL
    return [
        Fact(
            "pretrained model",
            f"{count_text(summary['num_parameters'])} parameters",
            f"{count_text(summary['tokens_seen'])} tokens in {summary['num_steps']:,} steps on "
            f"{summary['world_size']} workers ({summary['backend']}, ZeRO-{summary['zero_stage']})",
        ),
        _fact_of(final_validation(validation)),
        *_other_orders(validation),
        Fact(
            f"beats the unigram by {UNIGRAM_GOAL:.0%}?",
            _lower_by(summary["beats_unigram_by"]),
            f"the unigram model needs {unigram:.3f} bits per byte",
            beats_unigram,
        ),
        Fact(
            "beats the bigram?",
            _lower_by(1 - model / bigram),
            f"the smoothed bigram model needs {bigram:.3f} bits per byte",
            bool(summary["beats_bigram"]),
        ),
        *_in_training(summary),
    ]


def _fact_of(figure: Figure) -> Fact:
    return Fact(figure.label, figure.value, figure.detail)


def _in_training(summary: Mapping[str, Any]) -> list[Fact]:
    """Return figures of the training; records of older versions lack some."""
    found = [speed_of_steps(summary["tokens_per_s_median"], summary["num_steps"])]
    account, last = summary.get("goodput"), summary.get("validation_in_training")
    if last:
        best = summary["best_validation_in_training"]
        found.insert(0, validation_in_training(Validation(**last), Validation(**best)))
    if account and (overall := summary.get("tokens_per_s_overall")):
        found.append(overall_speed(overall, round(overall * account["wall_s"]), account["wall_s"]))
    if account:
        found.append(goodput_figure(account))
    return [_fact_of(figure) for figure in found]


def _other_orders(validation: Mapping[str, Any]) -> list[Fact]:
    """Return the results in other orders, if the validation scored them."""
    found = validation["by_condition"]
    if "any_order" not in found:
        return []
    without = found.get("left_to_right.without_memory")
    memory_text = "" if without is None else f"; left to right without memory {without:.3f}"
    return [
        Fact(
            "validation in other orders",
            f"{found['any_order']:.3f} and {found['infill']:.3f}",
            f"any order (half of a segment) and infill (an eighth, given both sides){memory_text}",
        )
    ]


def _lower_by(share: float) -> str:
    return f"{abs(share):.1%} {'lower' if share >= 0 else 'higher'}"


def _task(name: str, summary: Mapping[str, Any]) -> list[Fact]:
    """Return the headline of the system `pretrained`, else of the best trained system, with those of the others."""
    values = {system: found["headline"] for system, found in summary["systems"].items()}
    learned = [system for system, found in summary["systems"].items() if found["steps"]] or list(values)
    shown = "pretrained" if "pretrained" in values else max(learned, key=lambda system: values[system])
    headline = summary["systems"][shown]["metrics"][summary["headline"]]
    others = ", ".join(f"{system} {value:.4g}" for system, value in values.items() if system != shown)
    what = "" if shown == "pretrained" else f"{shown}; "
    label = f"{name}: {summary['headline'].replace('_', ' ')}"
    found = [Fact(label, f"{values[shown]:.4g}", f"{what}{headline['num_items']:,} items; {others}")]
    if {"pretrained", "scratch"} <= set(values):
        gain = values["pretrained"] - values["scratch"]
        detail = "difference to the same training without the pretrained weights"
        found.append(Fact(f"pretraining helps {name}?", f"{gain:+.4g}", detail, gain > 0))
    return found
