"""Results are compared where the test items are equal, whatever base model they are from."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from finetune.experiment.kinds import TaskConfig
from finetune.tasks.base import TaskConfigBase
from pipeline.commands.leaderboard import entries_in
from pipeline.folder.stage_record import StageRecord, write_record
from pipeline.folder.task_folder import fingerprint_test_items

_TASK: dict[str, Any] = {
    "kind": "translation", "folder": "/data/pairs", "test": "test.{side}", "source": "java", "target": "cs",
    "max_train": None, "language": None,
}  # fmt: skip
_ROWS: list[dict[str, Any]] = [
    {"key": "test-1", "source": "a", "references": ["b"], "written": "c"},
    {"key": "test-2", "source": "d", "references": ["e"], "written": "f"},
]


def item_fingerprint(folder: Path, task: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    path = folder / "predictions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config: Any = TypeAdapter(TaskConfig).validate_python(task)
    return fingerprint_test_items(config.test_settings(), path)


def test_answers_and_training_data_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    one = item_fingerprint(tmp_path, _TASK, _ROWS)
    others = [row | {"written": "other"} for row in _ROWS]
    assert item_fingerprint(tmp_path, _TASK | {"folder": "/elsewhere", "max_train": 10}, others) == one


@pytest.mark.parametrize("config", get_args(get_args(TaskConfig)[0]))
def test_paths_and_sizes_of_training_data_do_not_change_the_fingerprint(config: Any) -> None:
    about_training = {"folder", "train", "valid", "max_train", "max_valid", "train_splits", "bugs"}
    assert about_training & config.model_fields.keys() <= config.not_of_the_test
    own = config.not_of_the_test - TaskConfigBase.not_of_the_test
    assert own <= config.model_fields.keys(), "a setting that the task does not have"


@pytest.mark.parametrize(
    "change",
    [
        {"key": "x"},
        {"source": "x"},
        {"suffix": "x"},
        {"query": "x"},
        {"label": 1},
        {"texts": ["x"]},
        {"candidates": "x"},
    ],
)
def test_other_items_are_others(tmp_path: Path, change: dict[str, Any]) -> None:
    changed = [_ROWS[0] | change, _ROWS[1]]
    assert item_fingerprint(tmp_path, _TASK, changed) != item_fingerprint(tmp_path, _TASK, _ROWS)
    assert item_fingerprint(tmp_path, _TASK, _ROWS[:1]) != item_fingerprint(tmp_path, _TASK, _ROWS)


def test_other_settings_of_the_task_are_others(tmp_path: Path) -> None:
    assert item_fingerprint(tmp_path, _TASK | {"language": "java"}, _ROWS) != item_fingerprint(
        tmp_path, _TASK, _ROWS
    )


def test_the_leaderboard_shows_which_rows_can_be_compared(tmp_path: Path) -> None:
    for number, (fingerprint, value) in enumerate([("aaaaaaaa", 0.5), ("bbbbbbbb", 0.9), ("aaaaaaaa", 0.7)]):
        metric = {"value": value, "low": 0.1, "high": 0.95, "num_items": 2}
        folder = tmp_path / f"run-{number}" / "translation-0"
        folder.mkdir(parents=True)
        summary = {
            "headline": "bleu",
            "test_items": fingerprint,
            "systems": {"own": {"metrics": {"bleu": metric}, "num_parameters": 0}},
        }
        config = {"task": _TASK, "systems": {"own": {"kind": "copy"}}}
        record = StageRecord("translation", "k", 1, config, {}, f"model {number}", {}, summary, 1.0)
        write_record(folder, record)
    found = [(one.data, one.value) for one in entries_in([tmp_path, tmp_path / "run-1"])]
    linked = tmp_path.with_name("linked")
    linked.mkdir()
    (linked / "runs").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to(tmp_path)
    assert [(one.data, one.value) for one in entries_in([linked])] == found
    assert found == [
        ("java to cs pairs aaaaaa", 0.7),
        ("java to cs pairs aaaaaa", 0.5),
        ("java to cs pairs bbbbbb", 0.9),
    ]
