"""Changed settings of a run: which may differ, which must be accepted, and that its folder goes along."""

import os
from pathlib import Path

import pytest

from cluster.errors import UserError
from pipeline.folder.accepted_changes import (
    accepted_keys,
    may_differ,
    parse_config,
    refuse_to_restart_training,
    rename_stage_folder,
)
from pipeline.folder.config import RunConfig
from pipeline.folder.graph import plan, stage_folders
from pipeline.folder.recipe import load_run_config
from pipeline.folder.run_folder import check_owner, working_folder
from pipeline.run.dry_run import dry_run_lines
from pipeline.run.stages import build_stages

RATE = "schedule.peak_learning_rate"


def config(corpus: Path, *overrides: str) -> RunConfig:
    corpus.mkdir(exist_ok=True)
    (corpus / "a.py").write_text("x = 1\n")
    return load_run_config("smoke", [f"prep.source.path={corpus}", *overrides])


@pytest.mark.parametrize(
    ("key", "accepted", "may"),
    [
        ("pretrain.num_workers", [], True),
        ("pretrain.health.spikes", [], True),
        (f"pretrain.{RATE}", [], False),
        (f"pretrain.{RATE}", [RATE], True),
        (f"pretrain.{RATE}", ["schedule"], True),
        (f"pretrain.{RATE}", ["schedule.kind"], False),
        ("pretrain.lanes", [], False),
        ("seed", [], False),
        ("prep.split.seed", [], False),
    ],
)
def test_which_settings_may_differ(key: str, accepted: list[str], may: bool) -> None:
    assert may_differ(key, frozenset(accepted)) is may


def test_keys_may_be_given_with_their_prefix() -> None:
    assert accepted_keys(["pretrain.num_steps", RATE]) == {"num_steps", RATE}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("pretrain.num_workers", "not needed"),
        ("lanes", "cannot be changed"),
        ("nonsense", "cannot be changed"),
    ],
)
def test_what_need_not_or_cannot_be_accepted_is_refused(key: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        accepted_keys([key])


def test_a_folder_of_other_settings_says_how_to_resume(tmp_path: Path) -> None:
    out, before = tmp_path / "out", config(tmp_path / "corpus")
    now = config(tmp_path / "corpus", f"pretrain.{RATE}=0.5")
    with working_folder(out, before.model_dump(mode="json")):
        pass
    with pytest.raises(UserError, match=rf"or resume with --accept pretrain\.{RATE}$"):
        check_owner(out, now.model_dump(mode="json"))
    check_owner(out, now.model_dump(mode="json"), frozenset({RATE}))
    other = config(tmp_path / "corpus", f"pretrain.{RATE}=0.5", "seed=9")
    with pytest.raises(UserError) as refusal:
        check_owner(out, other.model_dump(mode="json"), frozenset({RATE}))
    assert "seed" in str(refusal.value)
    assert "--accept" not in str(refusal.value)


def test_workers_and_zero_stage_leave_the_folder_where_it_is(tmp_path: Path) -> None:
    before = config(tmp_path / "corpus")
    now = config(tmp_path / "corpus", "pretrain.num_workers=1", "pretrain.zero_stage=3")
    old, new = (stage_folders(build_stages(each), tmp_path) for each in (before, now))
    assert old["pretrain"] == new["pretrain"]
    assert old["search"] == new["search"]


def test_an_accepted_change_keeps_the_training_and_makes_a_finished_one_unfinished(
    tmp_path: Path,
) -> None:
    out, before = tmp_path / "out", config(tmp_path / "corpus")
    now = config(tmp_path / "corpus", f"pretrain.{RATE}=0.5")
    old = stage_folders(build_stages(before), out)["pretrain"]
    new = stage_folders(build_stages(now), out)["pretrain"]
    assert old != new
    (old / "checkpoints" / "step-00000010").mkdir(parents=True)
    (old / "model").mkdir()
    for name in (
        "STAGE.json",
        "result.json",
        "journal.jsonl",
        "model/config.json",
        "model/model.safetensors",
    ):
        (old / name).write_text("{}")
    theirs = parse_config(before.model_dump(mode="json"), RunConfig)
    for _ in range(2):  # a kill may come between the renaming and the marking of the folder
        rename_stage_folder(out, build_stages(theirs), build_stages(now))
        assert not old.exists()
        assert sorted(path.name for path in new.iterdir()) == ["checkpoints", "journal.jsonl"]


def test_training_that_is_not_finished_is_not_left_behind_in_silence(tmp_path: Path) -> None:
    """A corpus that was changed gives pretraining another folder: the old one must not be forgotten."""
    out, settings = tmp_path / "out", config(tmp_path / "corpus")
    checkpoint = stage_folders(build_stages(settings), out)["pretrain"] / "checkpoints" / "step-00000010"
    checkpoint.mkdir(parents=True)
    refuse_to_restart_training(plan(build_stages(settings), out))
    (tmp_path / "corpus" / "b.py").write_text("y = 2\n")
    with pytest.raises(
        UserError, match=r"has reached step-00000010, but the corpus it reads, or permcode itself"
    ):
        refuse_to_restart_training(plan(build_stages(settings), out))
    (checkpoint.parents[1] / "STAGE.json").write_text("{}")
    refuse_to_restart_training(plan(build_stages(settings), out))


def test_folders_made_before_keys_were_added_are_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are those without the keys that were added later."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "corpus" / "own" / "a.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1  # one two three four five six seven eight nine ten\n")
    os.utime(source, (1e9, 1e9))
    settings = load_run_config(
        "smoke", ["prep.source.path=corpus", "prep.decontamination.sets.mine.path=corpus/own/a.py"]
    )
    folders = stage_folders(build_stages(settings), Path("out"))
    assert (folders["prep"].name, folders["pretrain"].name) == (
        "prep-ca9175657aeb",
        "pretrain-23401adeff3e",
    )
    before = settings.model_dump(mode="json")
    del (
        before["prep"]["source"]["keep_vendored"],
        before["prep"]["decontamination"]["sets"]["mine"]["required"],
    )
    for task in before["finetune"].values():
        del task["training"]["learning_rates"]
        for system in task["systems"].values():
            system.pop("network", None)
            if "pooling" in system:
                del system["pooling"]["hidden_dim"], system["pooling"]["conba"]["form"]
    with working_folder(tmp_path / "out", before):
        pass
    check_owner(tmp_path / "out", settings.model_dump(mode="json"))
    other = load_run_config("smoke", ["prep.source.path=corpus", "prep.source.keep_vendored=true"])
    with pytest.raises(UserError, match=r"keep_vendored \(absent there, True here\)"):
        check_owner(tmp_path / "out", other.model_dump(mode="json"))


def test_sets_that_need_not_be_there_give_no_folder_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal commands from other working directories, where other sets are found, are of one run."""
    path, out = "data/set.txt", tmp_path / "out"
    settings = config(
        tmp_path / "corpus",
        f"prep.decontamination.sets={{mine: {{path: {path}, required: false}}}}",
    )
    (tmp_path / "with" / "data").mkdir(parents=True)
    (tmp_path / "with" / path).write_text("x = 1  # one two three four five six seven eight nine ten\n")
    (tmp_path / "without").mkdir()
    names = []
    for place in ("with", "without"):
        monkeypatch.chdir(tmp_path / place)
        names.append(stage_folders(build_stages(settings), out))
        lines = [line for line in dry_run_lines(settings, out, ["prep"]) if "continuing without" in line]
        expected = f"{'':<11} continuing without evaluation set mine: no file at {path}: correct its path"
        assert lines == ([expected] if place == "without" else [])
    assert names[0] == names[1]


def test_a_system_without_its_own_search_differs_from_one_with_it(tmp_path: Path) -> None:
    rates = "finetune.search.training.learning_rates=[0.001,0.002]"
    one = config(tmp_path / "corpus", rates)
    other = config(tmp_path / "corpus", rates, "finetune.search.training_of.scratch.learning_rates=[]")
    first, second = (stage_folders(build_stages(each), tmp_path)["search"] for each in (one, other))
    assert first != second
