"""Faults in real training processes: skipped steps, rewinds, stops and hangs."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from cluster.journal import JournalRecord, read_journal
from pretrain.audit import read_history
from pretrain.checkpoint.reading import CheckpointTensors
from tests.distributed.workers import Workers, final_state, small_config

_STEPS = 12


def events(folder: Path, name: str) -> list[JournalRecord]:
    return [record for record in read_journal(folder / "journal.jsonl") if record.name == name]


def cursors(folder: Path) -> list[int]:
    records = read_journal(folder / "journal.jsonl")
    return [record.facts["cursor"] for record in records if record.kind == "step"]


def test_a_step_that_is_not_finite_changes_nothing_and_names_its_documents(
    prep_folder: Path, tmp_path: Path
) -> None:
    """Worker 1 alone sees it; both leave the step out."""
    folder = tmp_path / "run"
    fault = {"kind": "nan", "cursors": [4, 8], "rank": 1}
    Workers(small_config(), prep_folder, folder, world_size=2, fault=fault).wait()
    skipped = events(folder, "skipped")
    assert [(event.facts["step"], event.facts["cursor"]) for event in skipped] == [(5, 4), (9, 8)]
    assert all(event.facts["cause"] == "loss" and event.facts["documents"] for event in skipped)
    assert CheckpointTensors(folder / "checkpoints" / "step-00000012").adam_steps == _STEPS - 2
    steps = [record for record in read_journal(folder / "journal.jsonl") if record.kind == "step"]
    assert [record.facts["applied"] for record in steps].count(False) == 2
    assert all(record.metrics["loss"] < 8 for record in steps if record.facts["applied"])


def test_what_a_step_read_is_suspected_only_where_the_steps_around_it_are_finite(
    prep_folder: Path, tmp_path: Path
) -> None:
    """Steps 3 and 4 are a streak, steps 8 and 10 stand alone. The checkpoints of steps 4 and 8 come a step late."""
    folder = tmp_path / "run"
    fault = {"kind": "nan", "cursors": [2, 3, 7, 9]}
    Workers(small_config(num_workers=1), prep_folder, folder, world_size=1, fault=fault).wait()
    suspected = events(folder, "suspect_data")
    assert [event.facts["step"] for event in suspected] == [8, 10]
    assert all(event.facts["documents"][0] in event.text for event in suspected)
    assert not any("document" in event.text for event in events(folder, "skipped"))
    assert [event.facts["step"] for event in events(folder, "checkpoint")] == [5, 9, 12]


def test_a_stop_waits_for_a_finite_step(prep_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "stop").touch()
    fault = {"kind": "nan", "cursors": [0, 1]}
    Workers(small_config(num_workers=1), prep_folder, folder, world_size=1, fault=fault).wait()
    assert [event.facts["step"] for event in events(folder, "stop")] == [3]


@pytest.mark.parametrize("sound_steps", [0, 8])
def test_after_divergence_the_command_in_the_message_trains_on_to_the_end(
    prep_folder: Path, tmp_path: Path, sound_steps: int
) -> None:
    """No weights survive a rate of 1e30. Every step is saved, so there are checkpoints of weights blown up.

    The same settings once more change nothing: they end where they ended, not after one step.
    """
    folder = tmp_path / "run"
    settings: dict[str, object] = {"num_workers": 1, "checkpoint": {"every_steps": 1}}
    if sound_steps:
        config = small_config(num_steps=sound_steps, **settings)
        Workers(config, prep_folder, folder, world_size=1).wait()
        (folder / "result.json").unlink()
    bad = small_config(num_steps=20, schedule={"peak_learning_rate": 1e30, "warmup_steps": 2}, **settings)
    accepted = ("num_steps", "schedule")
    messages = set()
    for _ in range(2):
        workers = Workers(bad, prep_folder, folder, world_size=1, accepted=accepted)
        assert workers.exit_codes() == [2]
        (message,) = [line for line in workers.log(0).splitlines() if line.startswith("UserError: ")][-1:]
        messages.add(message)
        first = sound_steps + 2
        assert f"loss was not finite in 5 steps in a row, {first} to {first + 4}, which did not" in message
        assert f"(loss {losses(folder)[first - 1]:.4g} in step {first - 1})" in message
        assert "document" not in message
        assert max(event.facts["step"] for event in events(folder, "checkpoint")) == first - 1
    assert len(messages) == 1
    key, rate, accepted_key = re.findall(r" pretrain\.(\S+)=(\S+) --accept (\S+)`", message)[0]
    schedule, name = key.split(".")
    assert accepted_key == key
    cured = small_config(num_steps=20, **{schedule: {name: float(rate), "warmup_steps": 2}}, **settings)
    Workers(cured, prep_folder, folder, world_size=1, accepted=(accepted_key, "num_steps")).wait()
    assert events(folder, "start")[-1].facts["step"] == sound_steps
    assert CheckpointTensors(folder / "checkpoints" / "step-00000020").adam_steps == 20
    assert losses(folder)[20] < losses(folder)[1] < 8
    assert read_history(read_journal(folder / "journal.jsonl")).problems == []


def losses(folder: Path) -> dict[int, float]:
    """Of every step of the line that made the model."""
    steps = read_history(read_journal(folder / "journal.jsonl")).steps
    return {number: made.loss for number, made in steps.items()}


def test_a_spike_is_rewound_and_its_data_skipped(prep_folder: Path, tmp_path: Path) -> None:
    """Data steps 17 and 18 make the loss jump; the run ends 2 data steps later, as one that never saw them would."""
    health = {"spikes": "rewind", "spike_window_steps": 10, "spike_patience_steps": 2}
    config = small_config(num_steps=24, num_workers=1, health=health)
    folder = tmp_path / "run"
    fault = {"kind": "jump", "cursors": [17, 18]}
    Workers(config, prep_folder, folder, world_size=1, fault=fault).wait()
    (rewind,) = events(folder, "rewind")
    assert rewind.facts["to_step"] == 16
    assert (rewind.facts["skipped_from_cursor"], rewind.facts["skipped_to_cursor"]) == (17, 19)
    assert cursors(folder) == [*range(19), 16, *range(19, 26)]
    checkpoint = CheckpointTensors(folder / "checkpoints" / "step-00000024")
    assert checkpoint.cursor == 26
    assert checkpoint.adam_steps == 24


def test_sigterm_saves_the_last_step_and_the_run_resumes_with_the_same_bits(
    prep_folder: Path, tmp_path: Path
) -> None:
    config = small_config(num_steps=100, checkpoint={"every_steps": 1000})
    whole, folder = tmp_path / "whole", tmp_path / "run"
    Workers(config, prep_folder, whole, world_size=2).wait()
    workers = Workers(config, prep_folder, folder, world_size=2)
    deadline_s = time.monotonic() + 120
    while workers.last_step() < 10:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    sent_s = time.time()
    workers.processes[1].send_signal(signal.SIGTERM)
    assert workers.exit_codes() == [0, 0]
    (checkpoint,), (stop,) = events(folder, "checkpoint"), events(folder, "stop")
    assert checkpoint.facts["reason"] == "stop"
    assert checkpoint.facts["step"] == stop.facts["step"] < 100
    assert checkpoint.time_s - sent_s < 3.0
    Workers(config, prep_folder, folder, world_size=2).wait()
    assert final_state(folder, 100) == final_state(whole, 100)


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_a_worker_that_lags_is_named(prep_folder: Path, tmp_path: Path, zero_stage: int) -> None:
    """Under ZeRO 3 too, where a layer's weights come from all workers."""
    folder = tmp_path / "run"
    config = small_config(num_steps=8, zero_stage=zero_stage, health={"straggler_every_steps": 4})
    fault = {"kind": "slow", "rank": 1}
    Workers(config, prep_folder, folder, world_size=2, fault=fault).wait()
    reported = events(folder, "stragglers")
    assert [event.facts["lagging"] for event in reported] == [[1], [1]]
    assert all(event.text.endswith("; lagging: worker 1") for event in reported)


@pytest.mark.slow
def test_figures_that_take_longer_than_the_watchdog_waits_are_no_hang(
    prep_folder: Path, tmp_path: Path
) -> None:
    """Neither 12 passes over the validation text, nor 12 lanes that one worker reads for n-grams while one waits."""
    folder = tmp_path / "run"
    config = small_config(health={"hang_timeout_s": 6})
    workers = Workers(config, prep_folder, folder, world_size=2, fault={"kind": "slow_end"})
    assert workers.exit_codes() == [0, 0]
    (ended,) = events(folder, "end")
    assert ended.facts["step"] == _STEPS
    assert (folder / "result.json").exists()


@pytest.mark.slow
def test_a_worker_that_hangs_is_named_and_all_end_with_the_code_for_another_try(
    prep_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    config = small_config(health={"hang_timeout_s": 20})
    fault = {"kind": "hang", "cursors": [6], "rank": 1}
    workers = Workers(config, prep_folder, folder, world_size=2, fault=fault)
    assert workers.exit_codes() == [75, 75]
    assert json.loads((folder / "hang.json").read_text())["text"].startswith(
        f"worker 1 (process {workers.processes[1].pid}"
    )
    assert "in loss" in (folder / "hang" / "rank-00001.txt").read_text()
    Workers(config, prep_folder, folder, world_size=2).wait()
    assert len(events(folder, "hang")) == 1
