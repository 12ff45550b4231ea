"""What the terminal shows of a finished experiment."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.folder.stage_record import StageRecord
from pipeline.report.experiment_table import SystemTable, experiment_lines, summary_lines
from pipeline.report.page import render_page


def system(value: float, cut: dict[str, int], parameters: int = 0) -> dict[str, Any]:
    metric = {"value": value, "low": value - 1, "high": value + 1, "num_items": 100}
    return {
        "metrics": {"bleu": metric}, "num_parameters": parameters, "seeds": [0], "steps": 0, "best_step": 0,
        "cut": cut,
    }  # fmt: skip


def lines(systems: dict[str, Any], resumed: bool) -> list[str]:
    summary = {"systems": systems, "headline": "bleu", "baseline": "copy", "facts": {"test_leaked": 3.0}}
    record = StageRecord("translation", "key", 1, {}, {}, "", {}, summary, wall_s=32.0, resumed=resumed)
    return experiment_lines({"translation": record, "report": record}, Path("runs/t"), "sqlite:///x.db")


SYSTEMS = {
    "copy": system(18.0, {}),
    "small": system(55.5, {"train_sources": 1_076, "train_targets": 2, "written_sources": 0}, 4_472_576),
    "other": system(40.0, {"train_sources": 1_076, "train_targets": 2}, 4_472_576),
    "third": system(30.0, {"texts": 0}),
}


def test_systems_are_sorted_best_first_and_cut_texts_are_reported_once() -> None:
    shown = lines(SYSTEMS, resumed=False)
    order = [line.split()[0] for line in shown if line.split() and line.split()[0] in SYSTEMS]
    assert order == ["small", "other", "third", "copy"]
    assert [line for line in shown if line.startswith("cut")] == [
        "cut: 1,076 train sources, 2 train targets (small, other)"
    ]
    assert "data: test_leaked 3" in shown


def test_every_system_s_number_of_parameters_stands_in_table_and_report() -> None:
    summary = {"systems": SYSTEMS, "headline": "bleu", "baseline": "copy", "facts": {}}
    rows = {row.split()[0]: row for row in summary_lines(summary, "t") if row.split()[:1]}
    assert rows["system"].endswith("size")
    assert rows["small"].endswith("4.47M")
    report = render_page("systems.html.j2", table=SystemTable.of(summary))
    head, *cells = [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in report.split("<tr>")[1:]]
    shown = {row[0]: row[head.index("parameters")] for row in cells}
    assert shown == {"small": "4.47M", "other": "4.47M", "third": "", "copy": ""}


def test_tried_rates_are_reported_with_the_metric_that_chose_one() -> None:
    searched = system(18.0, {}) | {
        "num_valid_items": 50,
        "learning_rate": 0.002,
        "learning_rates_tried": [
            {"learning_rate": 0.002, "valid": 41.25, "best_step": 5, "steps": 5},
            {"learning_rate": 0.008, "valid": None, "best_step": 0, "steps": 0},
        ],
    }
    shown = lines({"copy": system(17.0, {}), "searched": searched}, resumed=False)
    assert [line for line in shown if line.startswith("learning rate")] == [
        "learning rate of searched, by bleu on 50 items of the validation split: 0.002 41.25 (kept), 0.008 diverged"
    ]


def test_every_result_carries_its_number_of_items() -> None:
    one = system(18.0, {})
    one["metrics"]["pass@1"] = {"value": 2.0, "low": 1.0, "high": 3.0, "num_items": 1_640}
    shown = [line.split("│") for line in lines({"copy": one}, resumed=False) if line.startswith("copy")]
    (cells,) = [[cell.strip() for cell in row] for row in shown]
    assert cells[1:4] == ["100", "18 (17 to 19)", "2 (1 to 3), 1,640 items"]


@pytest.mark.parametrize(
    ("resumed", "expected"), [(False, "; it took 32s"), (True, "; the last command took 32s")]
)
def test_the_time_is_that_of_the_last_command(resumed: bool, expected: str) -> None:
    assert any(line.endswith(expected) for line in lines(SYSTEMS, resumed))


def test_overlap_with_the_pretraining_corpus_is_reported() -> None:
    counts = {"texts": 6267, "too_short": 0, "verbatim": 37, "half": 55}
    answers = {"texts": 472, "too_short": 0, "verbatim": 2, "half": 3}
    facts = {"texts": {"candidates": counts, "answers": answers}, "searched_share": 1.0, "items": 500}
    summary = {"systems": SYSTEMS, "headline": "bleu", "baseline": "copy", "facts": {}, "overlap": facts}
    expected = "verbatim in the pretraining corpus: 37 of 6,267 candidates, 2 of 472 answers"
    assert expected in summary_lines(summary, "t")
    answers["too_short"] = 8
    assert f"{expected} (8 too short to tell)" in summary_lines(summary, "t")
    answers["too_short"] = 0
    facts["searched_share"] = 0.25
    assert f"{expected}, in the 25.0% of the corpus that were searched" in summary_lines(summary, "t")
    assert not any("verbatim" in line for line in summary_lines(summary | {"overlap": None}, "t"))


def test_an_unknown_overlap_with_the_pretraining_corpus_is_reported() -> None:
    counts = {"texts": 9, "too_short": 1, "rewritten": 5, "verbatim": 0, "half": 0}
    facts = {"texts": {"sources": counts}, "searched_share": 1.0, "items": 9}
    summary = {"systems": SYSTEMS, "headline": "bleu", "baseline": "copy", "facts": {}, "overlap": facts}
    expected = "verbatim in the pretraining corpus: "
    counted = "0 of 9 sources (1 too short to tell, 5 rewritten before publication)"
    assert expected + counted in summary_lines(summary, "t")
    unknown = summary | {"overlap": None, "overlap_unknown": "names were replaced"}
    assert f"{expected}unknown (names were replaced)" in summary_lines(unknown, "t")
