"""What may change between two starts of a run, what only when it is accepted, and what never."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from pretrain.checkpoint.compatibility import (
    RULES,
    Rule,
    RunIdentity,
    check_newest,
    check_resumable,
    differences,
    rule_of,
)
from pretrain.checkpoint.listing import step_folders
from pretrain.config import PretrainConfig
from tests.checkpoints import IDENTITY, write_checkpoint

NOTHING: frozenset[str] = frozenset()


def changed(**values: Any) -> RunIdentity:
    """IDENTITY with other values at dotted keys, dots written as two underscores."""
    stored = IDENTITY.config.model_dump(mode="json")
    for key, value in values.items():
        *parents, last = key.split("__")
        place = stored
        for parent in parents:
            place = place[parent]
        place[last] = value
    return replace(IDENTITY, config=PretrainConfig.model_validate(stored))


def test_every_setting_has_a_rule_and_every_rule_a_setting() -> None:
    settings = IDENTITY.settings()
    for key in settings:
        assert any(key == rule or key.startswith(f"{rule}.") for rule in RULES), f"{key} has no rule"
    for rule in RULES:
        assert any(key == rule or key.startswith(f"{rule}.") for key in settings), f"{rule} is no setting"


def test_a_config_comes_back_from_its_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, 1)
    assert RunIdentity.read(folder) == IDENTITY
    assert differences(RunIdentity.read(folder), IDENTITY) == []


def test_what_does_not_change_the_result_is_free() -> None:
    now = changed(
        num_workers=1,
        zero_stage=1,
        recompute="layers",
        threads_per_worker=3,
        checkpoint__every_steps=7,
        validation__every_steps=9,
        health__spikes="rewind",
        max_worker_restarts=0,
    )
    assert len(differences(IDENTITY, now)) == 8
    assert check_resumable(IDENTITY, now, NOTHING) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_steps", 2000),
        ("schedule.peak_learning_rate", 5e-4),
        ("optimizer.weight_decay", 0.1),
        ("precision", "fp32"),
        ("objective.spans", 0.5),
        ("model.dropout", 0.0),
        ("model.attention_dropout", 0.1),
        ("micro_batch_lanes", 4),
    ],
)
def test_what_makes_another_run_has_to_be_accepted(key: str, value: object) -> None:
    now = changed(**{key.replace(".", "__"): value})
    with pytest.raises(UserError) as refused:
        check_resumable(IDENTITY, now, frozenset({"lanes", "tokenizer"}))
    old = IDENTITY.settings()[key]
    assert f"{key} was {old} and is now {value}" in str(refused.value)
    assert str(refused.value).endswith(f"resume with --accept {key}")
    for accepted in (key, key.split(".")[0]):
        (change,) = check_resumable(IDENTITY, now, frozenset({accepted}))
        assert (change.key, change.saved, change.now) == (key, old, value)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("model.num_layers", 3, "the weights have another shape"),
        ("model.positions.kind", "rotary", "the weights have another shape"),
        ("lanes", 32, "belong to lanes"),
        ("segment_tokens", 128, "counted in segments"),
    ],
)
def test_what_the_checkpoint_does_not_fit_is_never_accepted(key: str, value: object, why: str) -> None:
    stored = {"model.positions.kind": {"model__positions": {"kind": value}}}
    now = changed(**stored.get(key, {key.replace(".", "__"): value}))
    with pytest.raises(UserError, match=re.escape(key)) as refused:
        check_resumable(IDENTITY, now, frozenset({key, key.split(".")[0]}))
    assert why in str(refused.value)
    assert "use another --out" in str(refused.value)
    assert "--accept" not in str(refused.value)


def test_seed_and_tokenizer_never_change_a_corpus_may() -> None:
    for other in (replace(IDENTITY, seed=1), replace(IDENTITY, tokenizer="x" * 64)):
        with pytest.raises(UserError, match="use another --out"):
            check_resumable(IDENTITY, other, frozenset({"seed", "tokenizer"}))
    other = replace(IDENTITY, corpus="x" * 64)
    with pytest.raises(UserError, match=r"lanes read other tokens.*--accept corpus"):
        check_resumable(IDENTITY, other, NOTHING)
    assert [change.key for change in check_resumable(IDENTITY, other, frozenset({"corpus"}))] == ["corpus"]
    with pytest.raises(UserError, match=r"lanes read other tokens.*--accept data.own_weight"):
        check_resumable(IDENTITY, changed(data__own_weight=2.0), NOTHING)


def test_what_follows_from_an_accepted_setting_is_accepted_with_it() -> None:
    other = replace(changed(data__own_weight=2.0), corpus="x" * 64)
    for accepted in ({"data.own_weight"}, {"data"}):
        found = check_resumable(IDENTITY, other, frozenset(accepted))
        assert [change.key for change in found] == ["corpus", "data.own_weight"]
    with pytest.raises(UserError, match=r"resume with --accept data\.own_weight$"):
        check_resumable(IDENTITY, other, frozenset({"corpus"}))
    now = changed(deterministic=not IDENTITY.config.deterministic)
    assert check_resumable(IDENTITY, now, frozenset({"deterministic"}))
    with pytest.raises(UserError, match=r"resume with --accept deterministic$"):
        check_resumable(IDENTITY, now, NOTHING)


def test_a_run_cannot_end_before_the_step_it_has_come_to(tmp_path: Path) -> None:
    for step in (800, 1200):
        write_checkpoint(tmp_path, step)
    accepted = frozenset({"num_steps"})
    check_newest(tmp_path, changed(num_steps=1200).config, IDENTITY.seed, accepted)
    with pytest.raises(
        UserError, match=r"has made 1200 steps, and num_steps is now 1100: set it to 1200 or more"
    ):
        check_newest(tmp_path, changed(num_steps=1100).config, IDENTITY.seed, accepted)
    with pytest.raises(UserError, match=r"resume with --accept num_steps$"):
        check_newest(tmp_path, changed(num_steps=1300).config, IDENTITY.seed, NOTHING)
    (step_folders(tmp_path)[0] / "config.json").write_text("{")
    check_newest(tmp_path, changed(num_steps=1100).config, IDENTITY.seed, accepted)
    check_newest(tmp_path / "nothing", changed(num_steps=101).config, IDENTITY.seed, accepted)


def test_all_refused_keys_are_reported_at_once() -> None:
    now = changed(num_steps=5000, optimizer__beta2=0.95, schedule__warmup_steps=10)
    with pytest.raises(UserError) as refused:
        check_resumable(IDENTITY, now, frozenset({"optimizer"}))
    assert str(refused.value).endswith("--accept num_steps --accept schedule.warmup_steps")
    assert len(str(refused.value).splitlines()) == 1


def test_a_setting_without_a_rule_never_changes() -> None:
    assert rule_of("something.new") is Rule.NEVER


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (
            {"pretrain": {"num_steps": 5, "from_the_future": 1}},
            "has settings that this permcode does not know",
        ),
        ({"seed": "none"}, "has settings that this permcode does not know"),
    ],
)
def test_a_config_of_another_version_is_refused(
    tmp_path: Path, damage: dict[str, Any], reported: str
) -> None:
    folder = write_checkpoint(tmp_path, 1)
    write_document(folder / "config.json", read_document(folder / "config.json") | damage)
    with pytest.raises(UserError, match=reported):
        RunIdentity.read(folder)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="made by an older permcode"):
        RunIdentity.read(folder)
