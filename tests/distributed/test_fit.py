"""Training for a task: killed anywhere it ends with the same bits; one and two workers learn the same."""

import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from cluster.journal import JournalRecord, read_journal
from cluster.storage import sha256_file
from finetune.training.batches import Batches
from finetune.training.best_weights import Best, read_best
from finetune.training.config import FitConfig
from pretrain.checkpoint.listing import step_folders, step_of
from pretrain.checkpoint.reading import state_digest
from tests.distributed.fork_server import Worker, start_ranks

_STEPS = 24


def config(**changes: Any) -> FitConfig:
    values = {
        "steps": _STEPS, "batch_tokens": 64, "micro_batches": 2, "learning_rate": 0.02, "warmup_steps": 4,
        "evaluate_every_steps": 6, "layer_decay": 0.8, "precision": "fp32",
    }  # fmt: skip
    return FitConfig.model_validate(values | changes)


def start(
    folder: Path,
    given: FitConfig,
    metric: float | None = None,
    lag_steps: int = 0,
    writing_s: float = 0.0,
    **environment: str,
) -> list[Worker]:
    """`metric` is what every evaluation finds, instead of the loss; `lag_steps` as in `workers.Workers`.

    A checkpoint takes `writing_s` longer than it does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "folder": str(folder), "config": given.model_dump(mode="json"), "metric": metric, "lag_steps": lag_steps,
        "writing_s": writing_s,
    }  # fmt: skip
    logs = str(folder.parent / f"{folder.name}-{{}}.log")
    return start_ranks("fit_main", settings, given.num_workers, logs, environment)


def finish(
    folder: Path, given: FitConfig, metric: float | None = None, lag_steps: int = 0
) -> tuple[str, str]:
    """Hashes of the last checkpoint and of the best weights."""
    for rank, process in enumerate(start(folder, given, metric, lag_steps)):
        log = folder.parent / f"{folder.name}-{rank}.log"
        assert process.wait(120) == 0, log.read_text()[-3000:]
    return state(folder)


def state(folder: Path) -> tuple[str, str]:
    newest = max((folder / "checkpoints").iterdir())
    return state_digest(newest), sha256_file(folder / "best.safetensors")


def events(folder: Path, name: str) -> list[JournalRecord]:
    return [record for record in read_journal(folder / "journal.jsonl") if record.name == name]


@pytest.mark.parametrize(
    ("point", "changes"),
    [
        ("step.computed:9", {}),
        ("step.recorded:6", {"precision": "bf16", "zero_stage": 1}),
        ("checkpoint.tensors_torn:1", {}),
        ("checkpoint.renamed:2", {"num_workers": 2, "zero_stage": 2, "precision": "bf16"}),
        ("file.written:3", {}),
    ],
)
def test_killed_and_repeated_ends_with_the_same_bits(
    tmp_path: Path, point: str, changes: dict[str, Any]
) -> None:
    given = config(**changes)
    whole = finish(tmp_path / "whole", given)
    processes = start(tmp_path / "killed", given, PERMCODE_FAULT=point)
    deadline_s = time.monotonic() + 60
    while -9 not in [process.poll() for process in processes]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    for process in processes:
        process.kill()
    assert finish(tmp_path / "killed", given) == whole
    assert len(events(tmp_path / "killed", "start")) == 2


def test_one_step_ahead_of_the_figures_it_learns_the_same_and_ends_at_the_same_step(tmp_path: Path) -> None:
    """With the patience of two evaluations."""
    ends = []
    for lag_steps in (0, 1):
        folder, given = tmp_path / str(lag_steps), config(patience=2, steps=100, evaluate_every_steps=3)
        states = finish(folder, given, metric=0.0, lag_steps=lag_steps)
        steps = [r for r in read_journal(folder / "journal.jsonl") if r.kind == "step"]
        ends.append((states, [(record.step, record.metrics["loss"]) for record in steps]))
    assert ends[0] == ends[1]
    assert len(ends[0][1]) == 9


def test_it_learns_and_the_best_weights_are_those_of_the_best_evaluation(tmp_path: Path) -> None:
    finish(tmp_path / "run", config())
    steps = [record for record in read_journal(tmp_path / "run" / "journal.jsonl") if record.kind == "step"]
    assert [record.step for record in steps] == list(range(1, _STEPS + 1))
    assert steps[-1].metrics["loss"] < 0.8 * steps[0].metrics["loss"]
    valid = {record.step: record.metrics["valid"] for record in steps if "valid" in record.metrics}
    assert sorted(valid) == [6, 12, 18, 24]
    best = read_best(tmp_path / "run")
    assert best is not None
    assert best.metric == max(valid.values()) == valid[best.step]
    stored = load_file(tmp_path / "run" / "best.safetensors")
    assert set(stored) == {"below.weight", "below.bias", "above.weight", "above.bias"}


def test_one_and_two_workers_see_the_same_and_learn_nearly_the_same(tmp_path: Path) -> None:
    for num_workers in (1, 2):
        finish(tmp_path / str(num_workers), config(num_workers=num_workers))
    one, two = (
        [r.metrics["loss"] for r in read_journal(tmp_path / name / "journal.jsonl") if r.kind == "step"]
        for name in ("1", "2")
    )
    assert two == pytest.approx(one, rel=1e-4)


def test_training_stops_when_it_gets_no_better(tmp_path: Path) -> None:
    finish(tmp_path / "run", config(learning_rate=1e-12, patience=2, steps=100, evaluate_every_steps=3))
    (ended,) = events(tmp_path / "run", "ended")
    # The first evaluation is the best so far; so small a rate changes nothing after it, or hardly anything.
    assert ended.facts["steps"] < 100
    assert not ended.facts["stopped"]


def test_of_evaluations_that_are_alike_the_last_one_s_weights_are_kept(tmp_path: Path) -> None:
    # Exact match is 0 for long: the weights that were trained least would be judged.
    finish(tmp_path / "run", config(patience=2, steps=100, evaluate_every_steps=3), metric=0.0)
    (ended,) = events(tmp_path / "run", "ended")
    assert ended.facts["steps"] == 9
    assert read_best(tmp_path / "run") == Best(9, 0.0)


def test_a_loss_that_is_not_finite_ends_training_with_one_line(tmp_path: Path) -> None:
    (process,) = start(tmp_path / "run", config(learning_rate=1e30))
    assert process.wait(60) == 1
    assert "use a lower training.learning_rate" in (tmp_path / "run-0.log").read_text()


def test_weights_that_cannot_be_computed_with_end_training_with_one_line(tmp_path: Path) -> None:
    (process,) = start(tmp_path / "run", config(learning_rate=1e30, evaluate_every_steps=1))
    assert process.wait(60) == 1
    log = (tmp_path / "run-0.log").read_text()
    assert (
        "weights of step 1 are too large to compute with: use a lower training.learning_rate than 1e+30"
        in log
    )


def test_steps_that_were_not_applied_are_not_saved(tmp_path: Path) -> None:
    given = config(learning_rate=1e30, evaluate_every_steps=1)
    (process,) = start(tmp_path / "run", given, metric=0.0, writing_s=3.0)
    assert process.wait(60) == 1
    steps = [
        record.step for record in read_journal(tmp_path / "run" / "journal.jsonl") if record.kind == "step"
    ]
    num_skipped = len(events(tmp_path / "run", "skipped"))
    assert num_skipped == 5
    assert num_skipped == len(steps) - 1
    assert step_of(step_folders(tmp_path / "run" / "checkpoints")[0]) == 1


def test_every_example_occurs_once_an_epoch_and_batches_are_no_larger_than_asked() -> None:
    lengths = [1 + number % 7 for number in range(60)]
    batches = Batches(lengths, 20, seed=1)
    number, seen = 0, []
    while batches.epoch(number) == 0:
        batch = batches[number]
        assert len(batch) * max(lengths[index] for index in batch) <= 20
        seen += batch.tolist()
        number += 1
    assert sorted(seen) == list(range(60))
    assert [one.tolist() for one in map(Batches(lengths, 20, seed=1).__getitem__, range(5))] == [
        batches[number].tolist() for number in range(5)
    ]
