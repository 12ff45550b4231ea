"""`permcode status` says what the files say, of runs alive, hanging, stopped, finished and dead."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import UserError
from cluster.storage import exclusive_lock
from pipeline.cli import app
from pipeline.commands.status import speed_of, status_json, status_lines
from pipeline.folder.pretrain_folder import find_status_folder, read_shape
from pipeline.folder.status_facts import StatusFacts, read_facts
from tests.unit.pipeline.status_runs import RunOnDisk


@pytest.fixture
def run(tmp_path: Path) -> RunOnDisk:
    return RunOnDisk(tmp_path / "out")


def facts_after(run: RunOnDisk, seconds: float) -> StatusFacts:
    return read_facts(run.folder, run.clock_s + seconds)


def shown(run: RunOnDisk, seconds: float) -> str:
    facts = facts_after(run, seconds)
    return "\n".join(status_lines(facts, speed_of(facts, read_shape(find_status_folder(run.out))), []))


def test_a_live_run(run: RunOnDisk) -> None:
    run.attempt(12)
    run.beat()
    facts = facts_after(run, 0.5)
    assert (facts.state, facts.step, facts.num_steps, facts.tokens) == ("running", 12, 40, 12 * 4 * 64)
    assert facts.tokens_per_s == 256.0
    assert facts.left_s == pytest.approx(28.0)
    assert facts.loss == pytest.approx(3.8)
    assert facts.checkpoint is not None
    assert (facts.checkpoint.step, facts.checkpoint.num_steps_since, facts.checkpoint.age_s) == (10, 2, 2.5)
    assert facts.validation == facts.best_validation
    assert facts.last_step_age_s == 0.5
    text = shown(run, 4.0)
    assert "running since" in text
    assert "12 of 40 (30.0%), 3072 tokens, 4s ago" in text
    assert "about 28s" in text
    assert "MFU unknown on this machine" in text
    assert "validation in training  3.000 bits per byte; at step 10, best 3.000 at step 10" in text
    assert "step 10, 6s old, 2 steps since" in text


def test_a_killed_run_is_dead_since_its_last_beat_and_the_time_since_counts_as_down(run: RunOnDisk) -> None:
    run.attempt(12)
    run.beat()
    facts = facts_after(run, 500)
    assert (facts.state, facts.since_s, facts.left_s) == ("dead", run.clock_s, None)
    assert facts.goodput.parts.down_s == 500
    assert "DEAD since" in shown(run, 500)


def test_a_resumed_run_reports_the_steps_it_repeats(run: RunOnDisk) -> None:
    run.attempt(12)
    killed_s = run.clock_s
    run.killed(back_to=10)
    run.clock_s += 30
    run.attempt(1, previous_beat_s=killed_s)
    run.beat()
    facts = facts_after(run, 0)
    assert (facts.step, facts.furthest_step, facts.num_attempts) == (11, 12, 2)
    assert facts.goodput.parts.lost_s == 1
    text = shown(run, 0)
    assert "steps up to 12 are being repeated" in text
    assert "restarted 1 times" in text


def test_a_process_that_is_there_but_gives_no_sign_hangs(run: RunOnDisk) -> None:
    run.attempt(3)
    run.beat()
    with exclusive_lock(run.folder / ".writer.lock"):
        assert facts_after(run, 60).state == "hanging"
    assert facts_after(run, 60).state == "dead"


@pytest.mark.parametrize(("name", "state"), [("stop", "stopped"), ("end", "finished")])
def test_a_run_that_ended_in_order(run: RunOnDisk, name: str, state: str) -> None:
    run.attempt(12)
    run.event(name, step=12)
    run.beat()
    assert facts_after(run, 1e6).state == state


def test_a_run_that_said_why_it_failed(run: RunOnDisk) -> None:
    run.attempt(2)
    run.beat()
    (run.folder / "error.json").write_text(json.dumps({"message": "the shard is damaged: fix it"}))
    facts = facts_after(run, 60)
    assert (facts.state, facts.problem) == ("failed", "the shard is damaged: fix it")
    assert "the shard is damaged" in shown(run, 60)


def test_a_run_without_a_step_yet_is_starting(run: RunOnDisk) -> None:
    run.event("attempt", process_started_s=run.clock_s - 3, previous_beat_s=None)
    run.beat()
    facts = facts_after(run, 1)
    assert (facts.state, facts.step, facts.tokens_per_s) == ("starting", 0, None)
    assert "unknown before the first step" in shown(run, 1)


def test_health_is_counted_once_however_often_steps_are_made_again(run: RunOnDisk) -> None:
    run.attempt(6)
    for _ in range(2):
        run.event("skipped", "warning", step=6, cursor=5)
    run.event("damaged", "warning", checkpoint="step-00000005")
    run.event("rewind", "warning", to_step=5)
    run.event("stragglers", own_s=[1.0, 2.0], lagging=[1])
    facts = facts_after(run, 1)
    assert (facts.num_skipped_steps, facts.num_rewinds, facts.num_damaged, facts.num_warnings) == (1, 1, 1, 4)
    assert [warning.text for warning in facts.warnings] == [
        "the event skipped",
        "the event damaged",
        "the event rewind",
    ]
    assert "1 skipped steps, 1 rewinds, 1 damaged checkpoints, 4 warnings" in shown(run, 1)


def test_a_checkpoint_voided_by_a_rewind_is_not_the_last(run: RunOnDisk) -> None:
    run.attempt(12)
    run.event("rewind", to_step=5)
    facts = facts_after(run, 1)
    assert facts.checkpoint is not None
    assert facts.checkpoint.step == 5


def test_mfu_is_reported_where_the_peak_is_known(run: RunOnDisk) -> None:
    run.attempt(3, gpu="NVIDIA H100 80GB HBM3")
    facts = facts_after(run, 1)
    shape = read_shape(find_status_folder(run.out))
    speed = speed_of(facts, shape)
    assert speed is not None
    assert speed.mfu is not None
    peak_tflops = 989.4 if shape is not None and shape.config.precision == "bf16" else 66.9
    assert speed.mfu == pytest.approx(speed.flops_per_s / (2 * peak_tflops * 1e12))
    assert "of NVIDIA H100" in shown(run, 1)


def test_the_parts_of_goodput_are_shown_and_add_up(run: RunOnDisk) -> None:
    run.attempt(12)
    run.beat()
    values = json.loads(status_json(facts_after(run, 100), None, ["prep"]))
    assert sum(values["goodput"]["shares"].values()) == pytest.approx(1.0)
    assert values["finished_stages"] == ["prep"]
    text = shown(run, 100)
    for label in (
        "start-up",
        "data wait",
        "compute",
        "save stall",
        "evaluation",
        "lost work re-done",
        "down",
    ):
        assert f"  {label} " in text


def test_what_is_not_finite_is_null_for_programs(run: RunOnDisk) -> None:
    run.attempt(4)
    run.one_step(loss=math.nan, validation_bits_per_byte=math.inf)
    facts = facts_after(run, 1)
    assert "loss                    nan" in "\n".join(status_lines(facts, None, []))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    values = json.loads(status_json(facts, None, []), parse_constant=refuse)
    assert values["loss"] is None
    assert values["validation"] == {"step": 5, "bits_per_byte": None, "num_bytes": None}
    assert values["tokens_per_s"] == 256.0


def test_the_command_finds_the_newest_pretraining_and_ends_with_2_for_a_folder_that_is_no_run(
    run: RunOnDisk, tmp_path: Path
) -> None:
    run.attempt(2)
    for folder in (run.out, run.folder):
        result = CliRunner().invoke(app, ["status", str(folder), "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["step"] == 2
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "missing"):
        result = CliRunner().invoke(app, ["status", str(folder)])
        assert result.exit_code == 2
        assert result.stdout == ""
        assert len(result.stderr.strip().splitlines()) == 1


def test_before_pretraining_the_command_says_what_is_finished(run: RunOnDisk) -> None:
    (run.out / "prep-0123456789ab").mkdir()
    (run.out / "prep-0123456789ab" / "STAGE.json").write_text("{}")
    result = CliRunner().invoke(app, ["status", str(run.out)])
    assert result.exit_code == 0
    assert "pretraining has not begun; finished: prep" in result.stdout


def test_a_bare_pretraining_folder_is_described_by_its_newest_checkpoint(
    run: RunOnDisk, tmp_path: Path
) -> None:
    from pipeline.folder.recipe import load_run_config

    run.attempt(5)
    (run.out / "config.yaml").unlink()
    found = find_status_folder(run.folder)
    assert read_shape(found) is None
    checkpoint = run.folder / "checkpoints" / "step-00000005"
    checkpoint.mkdir(parents=True)
    config = load_run_config("smoke").pretrain
    (checkpoint / "config.json").write_text(json.dumps({"pretrain": config.model_dump(mode="json")}))
    (checkpoint / "model.json").write_text(json.dumps({"vocab_size": 300}))
    shape = read_shape(found)
    assert shape is not None
    assert (shape.config, shape.vocab_size) == (config, 300)


def test_a_folder_without_a_pretraining_and_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        find_status_folder(tmp_path)
