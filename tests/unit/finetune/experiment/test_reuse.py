"""What an experiment has trained outlives a change of its systems and seeds."""

from pathlib import Path

import pytest

from finetune.experiment.config import ExperimentConfig
from finetune.experiment.reuse import job_identity, sort_jobs


def config(**changes: object) -> ExperimentConfig:
    values: dict[str, object] = {
        "task": {"kind": "translation", "folder": "nowhere"},
        "systems": {"a": {"kind": "aligned_rnn"}, "b": {"kind": "transformer"}},
    }
    return ExperimentConfig.model_validate(values | changes)


def test_other_systems_and_seeds_do_not_change_what_a_job_is() -> None:
    plain = job_identity(config(), "a", 0, "data")
    more = {"a": {"kind": "aligned_rnn"}, "c": {"kind": "copy"}}
    assert job_identity(config(systems=more, num_seeds=3, baseline="c"), "a", 0, "data") == plain
    assert job_identity(config(training_of={"b": {"steps": 70}}), "a", 0, "data") == plain


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"steps": 70}},
        {"training_of": {"a": {"steps": 70}}},
        {"systems": {"a": {"kind": "aligned_rnn", "state_dim": 8}, "b": {"kind": "transformer"}}},
        {"task": {"kind": "translation", "folder": "nowhere", "max_train": 5}},
        {"robustness": {"transforms": ["rename"]}},
        {"seed": 1},
    ],
)
def test_what_changes_a_job_changes_its_identity(changes: dict[str, object]) -> None:
    plain = job_identity(config(), "a", 1, "data")
    assert job_identity(config(**changes), "a", 1, "data") != plain
    assert job_identity(config(), "a", 2, "data") != plain
    assert job_identity(config(), "a", 1, "other data") != plain
    same = {"a": {"kind": "aligned_rnn"}, "b": {"kind": "aligned_rnn"}}
    assert job_identity(config(systems=same), "b", 1, "data") != plain


def test_jobs_go_aside_and_come_back(tmp_path: Path) -> None:
    assert sort_jobs(tmp_path, {"a/seed-0": "A0", "b/seed-0": "B0"}) == []
    for job in ("a/seed-0", "b/seed-0"):
        (tmp_path / job / "journal.jsonl").write_text(job)

    assert sort_jobs(tmp_path, {"a/seed-0": "A0", "a/seed-1": "A1", "b/seed-0": "changed"}) == ["a/seed-0"]
    assert (tmp_path / "a/seed-0/journal.jsonl").read_text() == "a/seed-0"
    assert [path.name for path in (tmp_path / "b/seed-0").iterdir()] == ["identity.json"]
    (tmp_path / "b/seed-0/journal.jsonl").write_text("changed")

    assert sort_jobs(tmp_path, {"a/seed-1": "A1"}) == ["a/seed-1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".aside", "a"]

    assert sort_jobs(tmp_path, {"a/seed-0": "A0", "b/seed-0": "B0"}) == ["a/seed-0", "b/seed-0"]
    assert (tmp_path / "b/seed-0/journal.jsonl").read_text() == "b/seed-0"
    assert sorted(path.name for path in (tmp_path / ".aside").iterdir()) == ["A1", "changed"]


def test_jobs_of_an_older_version_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a/seed-0").mkdir(parents=True)
    assert sort_jobs(tmp_path, {"a/seed-0": "A0"}) == ["a/seed-0"]
    assert sort_jobs(tmp_path, {"a/seed-0": "A0"}) == ["a/seed-0"]
