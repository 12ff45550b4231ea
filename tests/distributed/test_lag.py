"""A host that is a step ahead of the figures it knows, as on a GPU, trains the same as one that waits for each step.

On a CPU every step is done when it has been launched, so what is tried here is the order of the loop's decisions.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.journal import JournalRecord, read_journal
from pretrain.checkpoint.listing import step_folders
from pretrain.checkpoint.reading import state_digest
from tests.distributed.workers import Workers, small_config


@dataclass
class Ended:
    """What a run leaves that does not depend on clocks."""

    codes: list[int]
    steps: list[tuple[int | None, dict[str, float], dict[str, Any]]]
    events: list[tuple[str, dict[str, Any], str]]
    """In no order: checkpoints are recorded by a thread."""
    states: dict[str, str]
    """Of the checkpoints that are left."""


def train(folder: Path, prep_folder: Path, config: Any, lag_steps: int, **settings: Any) -> Workers:
    return Workers(config, prep_folder, folder, config.num_workers, lag_steps=lag_steps, **settings)


def ended(workers: Workers) -> Ended:
    codes = workers.exit_codes()
    records = read_journal(workers.folder / "journal.jsonl")
    steps = [
        (record.step, without_times(record.metrics), without_times(record.facts))
        for record in records
        if record.kind == "step"
    ]
    events = [
        (record.name, without_times(record.facts), without_numbers(record))
        for record in records
        if record.kind == "event" and record.name not in ("attempt", "stragglers")
    ]
    folders = step_folders(workers.folder / "checkpoints")
    return Ended(codes, steps, sorted(events, key=repr), {one.name: state_digest(one) for one in folders})


def without_times(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.endswith("_s")}


def without_numbers(record: JournalRecord) -> str:
    """The text, if it does not tell seconds or a folder."""
    return "" if record.name in ("checkpoint", "diverged") else record.text


def order(log: Path) -> str:
    """Which of the first worker's steps was launched (L) and recorded (r) when."""
    letters = {"step.updated": "L", "step.recorded": "r"}
    names = [line.split(":")[0] for line in log.read_text().splitlines()]
    return "".join(letters[name] for name in names if name in letters)


CASES = {
    "with evaluations and checkpoints": ({"validation": {"every_steps": 3, "during_tokens": 128}}, None, 0),
    "with ZeRO 0": ({"zero_stage": 0}, {"kind": "nan", "cursors": [4], "rank": 1}, 0),
    "with ZeRO 1": ({"zero_stage": 1, "micro_batch_lanes": 1}, {"kind": "nan", "cursors": [4], "rank": 1}, 0),
    "with ZeRO 3": ({"zero_stage": 3}, {"kind": "nan", "cursors": [4], "rank": 1}, 0),
    "with steps that are not finite": ({"num_workers": 1}, {"kind": "nan", "cursors": [2, 3, 7, 9]}, 0),
    "to divergence": ({"num_workers": 1}, {"kind": "nan", "cursors": [*range(6, 20)]}, 2),
    "to divergence at once": (
        {"num_workers": 1, "health": {"max_skipped_steps": 1}}, {"kind": "nan", "cursors": [6]}, 2
    ),
    "back from a spike": (
        {
            "num_workers": 1, "num_steps": 24,
            "health": {"spikes": "rewind", "spike_window_steps": 10, "spike_patience_steps": 2},
        },
        {"kind": "jump", "cursors": [17, 18]},
        0,
    ),
}  # fmt: skip
"""Changes of the config, a fault, and the exit code."""


@pytest.mark.parametrize("case", CASES)
def test_a_run_one_step_ahead_leaves_what_a_run_that_waits_leaves(
    prep_folder: Path, tmp_path: Path, case: str
) -> None:
    changes, fault, code = CASES[case]
    config = small_config(**changes)
    found, orders = [], []
    for lag_steps in (0, 1):
        log, folder = tmp_path / f"{lag_steps}.log", tmp_path / str(lag_steps)
        environment = {"PERMCODE_FAULT_LOG": str(log)} if config.num_workers == 1 else {}
        workers = train(folder, prep_folder, config, lag_steps, fault=fault, environment=environment)
        found.append(ended(workers))
        orders.append(order(log) if environment else "")
    assert found[0] == found[1]
    assert set(found[0].codes) == {code}
    assert found[0].states
    assert "LL" not in orders[0]
    waits = "max_skipped_steps" in changes.get("health", {})
    assert not orders[1] or ("LLr" in orders[1]) is not waits


def test_a_run_killed_one_step_ahead_resumes_to_the_same_bits(prep_folder: Path, tmp_path: Path) -> None:
    config = small_config()
    whole = ended(train(tmp_path / "whole", prep_folder, config, 0))
    kill = {"PERMCODE_FAULT": "step.updated:7:1"}
    killed = train(tmp_path / "killed", prep_folder, config, 1, environment=kill)
    assert -9 in killed.exit_codes(timeout_s=20)
    again = ended(train(tmp_path / "killed", prep_folder, config, 1))
    assert again.states == whole.states
    # The other worker may have recorded step 6 before it noticed.
    recorded = [step for step, *_ in again.steps]
    assert recorded[-13:] in ([*range(1, 6), *range(5, 13)], [*range(2, 7), *range(5, 13)])


@pytest.mark.parametrize(("spoilt", "stops"), [((), (1, 2)), ((0, 1), (3, 3)), ((1,), (1, 3))])
def test_a_stop_comes_at_most_one_applied_step_later(
    prep_folder: Path, tmp_path: Path, spoilt: tuple[int, ...], stops: tuple[int, int]
) -> None:
    """It is asked for in the first step; a step that is not finite does not end a run."""
    config, reported = small_config(num_workers=1), []
    for lag_steps in (0, 1):
        folder = tmp_path / str(lag_steps)
        folder.mkdir()
        (folder / "stop").touch()
        fault = {"kind": "nan", "cursors": list(spoilt)}
        found = ended(train(folder, prep_folder, config, lag_steps, fault=fault))
        (stopped,) = [facts["step"] for name, facts, _ in found.events if name == "stop"]
        assert [step for step, *_ in found.steps] == list(range(1, stopped + 1))
        assert list(found.states) == [f"step-{stopped:08d}"]
        reported.append(stopped)
    assert tuple(reported) == stops


def test_every_second_of_a_run_one_step_ahead_is_counted_once(prep_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, prep_folder, small_config(num_workers=1, num_steps=40), 1).wait()
    steps = [record for record in read_journal(folder / "journal.jsonl") if record.kind == "step"]
    for before, record in zip(steps, steps[1:], strict=False):
        facts = record.facts
        assert facts["data_s"] >= 0
        assert facts["compute_s"] >= 0
        spent_s = facts["data_s"] + facts["compute_s"] + facts["save_s"] + facts["evaluation_s"]
        assert spent_s <= record.time_s - before.time_s + 0.01
    spent_s = sum(record.facts["data_s"] + record.facts["compute_s"] for record in steps)
    assert spent_s > 0.5 * (steps[-1].time_s - steps[0].time_s)
    assert json.loads((folder / "result.json").read_text())["num_steps"] == 40
