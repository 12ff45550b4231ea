"""What runs, what is skipped, and the reason that is given."""

import shutil
from pathlib import Path

import pytest

from cluster.errors import UserError
from pipeline.folder.graph import PlannedStage, ancestors, plan, refuse_damage
from pipeline.folder.layout import StageFiles
from pipeline.folder.recipe import load_run_config
from pipeline.run import stages
from tests.unit.pipeline.toy_graph import ToyGraph

SKIPPED = {"a": "skip", "b": "skip", "c": "skip"}


@pytest.fixture
def graph() -> ToyGraph:
    return ToyGraph()


def steps(graph: ToyGraph, out: Path) -> dict[str, PlannedStage]:
    return {step.stage.name: step for step in plan(graph.stages(), out)}


def test_a_new_folder_runs_everything_once(graph: ToyGraph, tmp_path: Path) -> None:
    assert {step.reason for step in plan(graph.stages(), tmp_path)} == {"no output yet"}
    graph.finish(tmp_path)
    graph.finish(tmp_path)
    assert graph.runs == ["a", "b", "c"]
    assert graph.actions(tmp_path) == SKIPPED


def test_planning_writes_nothing(graph: ToyGraph, tmp_path: Path) -> None:
    plan(graph.stages(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_changed_config_reruns_its_stage_and_names_the_key(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    graph.config_b = {"width": 3, "rate": {"peak": 0.2}}
    assert graph.actions(tmp_path) == {**SKIPPED, "b": "run"}
    assert steps(graph, tmp_path)["b"].reason == "config changed: rate.peak"


def test_a_changed_corpus_reruns_all_that_read_it(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    graph.signature = "corpus 2"
    found = steps(graph, tmp_path)
    assert {name: step.action for name, step in found.items()} == dict.fromkeys("abc", "run")
    assert found["a"].reason == "input changed: the files it reads"
    assert found["b"].reason == "input changed: a"


def test_a_raised_version_reruns_the_stage(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    graph.version_c = 2
    assert graph.actions(tmp_path) == {**SKIPPED, "c": "run"}
    assert "output version changed (1 to 2)" in steps(graph, tmp_path)["c"].reason


def test_an_old_config_finds_its_output_again(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    old = graph.config_b
    graph.config_b = {"width": 4}
    graph.finish(tmp_path)
    graph.config_b = old
    assert graph.actions(tmp_path) == SKIPPED


def test_a_folder_without_the_mark_is_resumed(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    folder = steps(graph, tmp_path)["b"].folder
    (folder / StageFiles.RECORD).unlink()
    assert graph.actions(tmp_path) == {**SKIPPED, "b": "resume"}
    assert folder.name in steps(graph, tmp_path)["b"].reason


def test_a_removed_folder_is_made_again(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    shutil.rmtree(steps(graph, tmp_path)["c"].folder)
    assert graph.actions(tmp_path) == {**SKIPPED, "c": "run"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is missing since stage b finished"),
        (lambda path: path.write_bytes(b"b" * 99), "is damaged .99 bytes, 100 when stage b wrote it"),
        (lambda path: path.write_bytes(b"c" + b"b" * 99), "is damaged .its SHA-256 changed"),
    ],
)
def test_damage_is_reported_with_its_fix(graph: ToyGraph, tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    graph.finish(tmp_path)
    folder = steps(graph, tmp_path)["b"].folder
    damage(folder / "sub" / "data.bin")
    with pytest.raises(UserError, match=f"data.bin {message}.*remove the folder {folder}"):
        refuse_damage(plan(graph.stages(), tmp_path))


def test_a_torn_mark_is_damage_and_not_a_rerun(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    mark = steps(graph, tmp_path)["b"].folder / StageFiles.RECORD
    mark.write_text("{")
    with pytest.raises(UserError, match="STAGE.json is damaged"):
        refuse_damage(plan(graph.stages(), tmp_path))


def test_a_mark_of_another_version_says_what_to_do(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    mark = steps(graph, tmp_path)["b"].folder / StageFiles.RECORD
    mark.write_text('{"stage": "b"}')
    with pytest.raises(UserError, match="written by another version of permcode: remove the folder"):
        refuse_damage(plan(graph.stages(), tmp_path))


def test_only_what_a_target_needs_is_in_its_ancestors(graph: ToyGraph) -> None:
    assert [stage.name for stage in ancestors(graph.stages(), "c")] == ["a", "c"]


def test_files_with_a_leading_dot_are_no_outputs(graph: ToyGraph, tmp_path: Path) -> None:
    graph.finish(tmp_path)
    record = steps(graph, tmp_path)["a"].record
    assert record is not None
    assert set(record.files) == {"sub/data.bin"}


def test_another_format_of_prep_runs_everything_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run_config("smoke", [f"prep.source.path={corpus}"])
    before = plan(stages.build_stages(config), tmp_path)
    monkeypatch.setattr(stages, "FORMAT_VERSION", stages.FORMAT_VERSION + 1)
    after = plan(stages.build_stages(config), tmp_path)
    assert [old.stage.name for old, new in zip(before, after, strict=True) if old.key == new.key] == []
