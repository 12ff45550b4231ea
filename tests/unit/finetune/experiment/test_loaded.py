"""Systems that were saved and are used elsewhere, one of every kind that has weights."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file

from cluster.errors import UserError
from cluster.storage import read_document, sha256_file, write_document
from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment.kinds import SystemConfig, TaskConfig
from finetune.experiment.loaded import LoadedSystem, columns_of
from finetune.lexing import python_lexemes
from finetune.modalities.labelling import Labelled, LabellingData
from finetune.modalities.predicting import Code, PredictingData
from finetune.modalities.ranking import Match, Pool, RankingData
from finetune.modalities.writing import Pair, WritingData
from finetune.systems import saved
from finetune.systems.base import Base
from finetune.systems.saved import module_of, save_system
from pretrain.inference.folders import checked_model
from pretrain.inference.language_model import PermutationLM
from pretrain.model.transformer import TwoStreamTransformer

_WRITER = {"source_tokens": 24, "target_tokens": 8}
_DIAGONAL = {"kind": "conba", "conba": {"form": "diagonal", "dim": 8}}
_SMALL_STACK = {"num_layers": 1, "num_heads": 2, "ffn_dim": 16}
_POOL = Pool(["q"], ["add two"], ["a + b", "a - b"], [(0,)])
_DATA: dict[str, Any] = {
    "write": WritingData([Pair("1", "a b", ("b a",))], [], []),
    "rank": RankingData([Match("add two", "a + b", "g"), Match("take", "a - b", "h")], _POOL, _POOL),
    "predict": PredictingData([Code("1", "a = b", partial(python_lexemes, "a = b"))], [], []),
}
_ROWS = {
    "text": "def f(a): return <mask>(a)",
    "suffix": "\n",
    "other": "int f(int a)",
    "query": "add two",
    "candidate": "a + b",
}
_RNN = {"start": "scratch", "network": {"kind": "aligned_rnn", "cell": "lstm", "state_dim": 8}}
_TRANSFORMER = {"start": "scratch", "network": {"kind": "transformer"}}
_DEFECT = {"kind": "defect", "folder": "/data"}
_CLONES = {"kind": "clone_pairs", "folder": "/data"}
_CLOZE = {"kind": "cloze", "words": ["max", "min", "sum"]}
_TRANSLATION = {"kind": "translation", "folder": "/data"}
_SEARCH = {"kind": "text_search"}
_TOKENS = {"kind": "token_completion"}


@pytest.fixture(scope="session")
def base(pretrain_folder: Path, corpus: PreparedCorpus) -> Base:
    files, description = checked_model(pretrain_folder)
    return Base(description, corpus.tokenizer, files, torch.device("cpu"))


def data_of(task: Any) -> Any:
    if task.modality != "label":
        return _DATA[task.modality]
    num_texts = len(columns_of(task).needed)
    # The last label never occurs: that it exists must be known all the same.
    return LabellingData(
        [Labelled("1", ("a",) * num_texts, 0)], [], [], {}, num_texts, len(task.build().labels)  # type: ignore[union-attr]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "system"),
    [
        (_TRANSLATION, {"kind": "permutation_lm", **_WRITER}),
        (_TRANSLATION, {"kind": "permutation_lm", "adaptation": "lora", "lora_rank": 2, **_WRITER}),
        (_TRANSLATION, {"kind": "permutation_lm", "adaptation": "head", **_WRITER}),
        ({"kind": "infilling"}, {"kind": "permutation_lm", **_WRITER}),
        (_TRANSLATION, {"kind": "encoder_decoder", "decoder": _SMALL_STACK, **_WRITER}),
        (_TRANSLATION, {"kind": "encoder_decoder", "adaptation": "lora", "decoder": _SMALL_STACK, **_WRITER}),
        (_TRANSLATION, {"kind": "transformer", "encoder": {**_SMALL_STACK, "model_dim": 16}, **_WRITER}),
        (_TRANSLATION, {"kind": "aligned_rnn", "embedding_dim": 8, "state_dim": 8, **_WRITER}),
        (_SEARCH, {"kind": "bi_encoder"}),
        (_SEARCH, {"kind": "bi_encoder", "pooling": {"kind": "conba", "conba": {"dim": 8}}}),
        (_SEARCH, {"kind": "bi_encoder", "adaptation": "lora", "pooling": {"kind": "attention"}}),
        (_SEARCH, {"kind": "zero_shot_encoder"}),
        (_SEARCH, {"kind": "bi_encoder", **_RNN}),
        (_SEARCH, {"kind": "bi_encoder", **_TRANSFORMER}),
        (_TOKENS, {"kind": "left_to_right"}),
        (_TOKENS, {"kind": "left_to_right", **_RNN}),
        (_TOKENS, {"kind": "left_to_right", **_TRANSFORMER}),
        (_TOKENS, {"kind": "left_to_right", "adaptation": "lora", "lora_rank": 2}),
        (_TOKENS, {"kind": "left_to_right", "start": "scratch", "positions": {"kind": "rotary"}}),
        (_DEFECT, {"kind": "classifier"}),
        (_DEFECT, {"kind": "classifier", "adaptation": "lora"}),
        (_CLONES, {"kind": "classifier", "adaptation": "head"}),
        (_CLONES, {"kind": "classifier", "reading": "together", "text_tokens": 16, "pooling": _DIAGONAL}),
        (_DEFECT, {"kind": "classifier", **_RNN}),
        (_CLONES, {"kind": "classifier", "reading": "together", **_TRANSFORMER}),
        (_CLOZE, {"kind": "classifier"}),
        (_CLOZE, {"kind": "zero_shot_cloze", "words": ["max", "min", "sum"]}),
    ],
)
def test_a_saved_system_answers_as_the_one_that_was_saved(
    base: Base, tmp_path: Path, task: dict[str, Any], system: dict[str, Any]
) -> None:
    usable, built = saved_and_loaded(base, tmp_path, task, system)
    columns = columns_of(usable.task_config)
    row = {name: _ROWS[name] for name in (*columns.needed, *columns.optional)}
    answer = usable.answer([row])[0]
    json.dumps(answer)
    reported = answer["prediction"]
    match usable.modality:
        case "write":
            assert [reported] == built.write([(row["text"], row.get("suffix"))], lambda _: None)
        case "rank":
            assert reported == built.scores([row["query"]], [row["candidate"]], lambda _: None)[0, 0]
        case "label":
            found_C = built.probabilities([tuple(row[name] for name in columns.needed)], lambda _: None)[0]
            labels = usable.task_config.build().labels  # type: ignore[union-attr]
            assert reported == labels[int(found_C.argmax())]
            assert list(answer["probabilities"]) == list(labels)
            assert np.array_equal(list(answer["probabilities"].values()), found_C)
        case "predict":
            item = usable.task_config.build().code("1", row["text"])  # type: ignore[union-attr]
            rank_T = built.ranks([item], lambda _: None)[0]
            assert answer["tokens"] == [
                "def",
                "f",
                "(",
                "a",
                ")",
                ":",
                "return",
                "<",
                "mask",
                ">",
                "(",
                "a",
                ")",
            ]
            assert answer["ranks"] == rank_T.tolist()
            assert reported == (rank_T == 1).mean()


def test_the_weights_of_a_saved_system_are_hashed_once(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_and_loaded(base, tmp_path, _SEARCH, {"kind": "bi_encoder"})
    hashed: list[str] = []

    def recorded(path: Path) -> str:
        hashed.append(path.name)
        return sha256_file(path)

    monkeypatch.setattr(saved, "sha256_file", recorded)
    LoadedSystem.load(tmp_path, "cpu")
    assert sorted(hashed) == ["model.safetensors", "tokenizer.json"]


def test_a_text_that_cannot_be_lexed_has_no_answer_and_those_beside_it_have(
    base: Base, tmp_path: Path
) -> None:
    usable, _ = saved_and_loaded(base, tmp_path, _TOKENS, {"kind": "left_to_right"})
    answers = usable.answer([{"text": "a = b"}, {"text": "('"}, {"text": ""}, {"text": "c"}])
    assert [len(one["tokens"]) for one in answers] == [3, 0, 0, 1]
    assert [one["prediction"] is None for one in answers] == [False, True, True, False]


@pytest.mark.parametrize(
    ("task", "system", "name"),
    [
        (_TRANSLATION, {"kind": "permutation_lm", **_WRITER}, "network"),
        (_TRANSLATION, {"kind": "encoder_decoder", "decoder": _SMALL_STACK, **_WRITER}, "encoder"),
        (_SEARCH, {"kind": "bi_encoder"}, "encoder.network"),
        (_TOKENS, {"kind": "left_to_right", "start": "scratch", "positions": {"kind": "rotary"}}, "network"),
        (_DEFECT, {"kind": "classifier", "adaptation": "head"}, "encoder.network"),
    ],
)
def test_the_network_of_a_saved_system_can_be_used_by_itself(
    base: Base, tmp_path: Path, task: dict[str, Any], system: dict[str, Any], name: str
) -> None:
    folder = tmp_path / "task" / "pretrained" / "seed-0" / "model"
    _, built = saved_and_loaded(base, folder, task, system)
    module = module_of(built)
    assert module is not None
    network = module.get_submodule(name)
    assert isinstance(network, TwoStreamTransformer)
    texts = ["def f(a): return a", "x = 1"]
    wanted = [one.bits_per_byte for one in PermutationLM(network, base.tokenizer).score(texts)]
    for place in (folder, folder.parent, folder.parent.parent, tmp_path / "task"):
        found = PermutationLM.from_run(place, device="cpu")
        assert found.segment_tokens == base.description.segment_tokens
        assert [one.bits_per_byte for one in found.score(texts)] == wanted


@pytest.mark.parametrize(
    "system",
    [
        {"kind": "permutation_lm", "adaptation": "lora", "lora_rank": 2, **_WRITER},
        {"kind": "aligned_rnn", "embedding_dim": 8, "state_dim": 8, **_WRITER},
    ],
)
def test_a_saved_system_without_a_whole_network_says_so(
    base: Base, tmp_path: Path, system: dict[str, Any]
) -> None:
    saved_and_loaded(base, tmp_path / "seed-0" / "model", _TRANSLATION, {"kind": "permutation_lm", **_WRITER})
    saved_and_loaded(base, tmp_path / "seed-0" / "model", _TRANSLATION, system)
    with pytest.raises(UserError, match="a finetuned system whose network cannot be used by itself"):
        PermutationLM.from_run(tmp_path)


def saved_and_loaded(
    base: Base, folder: Path, task: dict[str, Any], system: dict[str, Any]
) -> tuple[LoadedSystem, Any]:
    """The system from its folder, and the one that was saved, whose weights differ from those it began with."""
    task_config = TypeAdapter[Any](TaskConfig).validate_python(task)
    system_config = TypeAdapter[Any](SystemConfig).validate_python(system)
    built = system_config.build(base, data_of(task_config), seed=3)
    module = module_of(built)
    if module is not None:
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        module.eval()
    names = list(getattr(task_config.build(), "labels", ()))
    save_system(
        folder, system_config.model_dump(mode="json"), task_config.model_dump(mode="json"), 3, names, base, module
    )  # fmt: skip
    return LoadedSystem.load(folder, "cpu"), built


@pytest.mark.parametrize(
    ("task", "system"),
    [
        (_TRANSLATION, {"kind": "copy"}),
        (_TRANSLATION, {"kind": "nearest"}),
        (_SEARCH, {"kind": "lexical_ranker"}),
        (_DEFECT, {"kind": "lexical_labeller"}),
    ],
)
def test_a_system_that_only_counts_says_that_it_is_not_saved(
    base: Base, tmp_path: Path, task: dict[str, Any], system: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=f"the system {system['kind']} only counts its training data"):
        saved_and_loaded(base, tmp_path, task, system)


@pytest.mark.parametrize(
    ("task", "system", "row", "reported"),
    [
        (_CLONES, {"kind": "classifier"}, {"text": "a"}, "text in 'other': .* clone_pairs have text, other"),
        (_DEFECT, {"kind": "classifier"}, {"text": 3}, "row 1 has no text in 'text': .* defect have text"),
        (_SEARCH, {"kind": "bi_encoder"}, {"text": "a"}, "row 1 has no text in 'query'"),
        ({"kind": "infilling"}, {"kind": "permutation_lm"}, {"suffix": "a"}, "have text and may have suffix"),
        (_SEARCH, {"kind": "bi_encoder"}, {"query": "a", "candidate": "\ud800"}, "row 1 has .* in 'candidate'"),
        ({"kind": "infilling"}, {"kind": "permutation_lm"}, {"text": "", "suffix": "\ud800"}, "in 'suffix'"),
    ],
)  # fmt: skip
def test_a_row_without_what_the_system_reads_is_named(
    base: Base,
    tmp_path: Path,
    task: dict[str, Any],
    system: dict[str, Any],
    row: dict[str, Any],
    reported: str,
) -> None:
    if system["kind"] == "permutation_lm":
        system = system | _WRITER
    usable, _ = saved_and_loaded(base, tmp_path, task, system)
    with pytest.raises(UserError, match=reported):
        usable.answer([row])


def test_more_pairs_than_memory_holds_scores_of_are_refused(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable, _ = saved_and_loaded(base, tmp_path, _SEARCH, {"kind": "zero_shot_encoder"})
    rows = [{"query": str(number), "candidate": str(number)} for number in range(9)]
    assert len(usable.answer(rows)) == 9
    monkeypatch.setattr("cluster.memory.free_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="comparing 9 queries with 9 candidates takes .* give fewer rows"):
        usable.answer(rows)


def test_a_system_answers_by_the_threshold_that_was_chosen_for_it(base: Base, tmp_path: Path) -> None:
    config = TypeAdapter[Any](SystemConfig).validate_python({"kind": "classifier"})
    system = config.build(base, data_of(TypeAdapter[Any](TaskConfig).validate_python(_CLONES)), 0)
    row = {"text": "a b", "other": "b a"}

    def answer(threshold: float | None) -> dict[str, Any]:
        save_system(
            tmp_path,
            config.model_dump(mode="json"),
            _CLONES,
            0,
            ["other", "clone"],
            base,
            module_of(system),
            threshold,
        )
        return LoadedSystem.load(tmp_path, "cpu").answer([row])[0]

    plain = answer(None)
    clone = plain["probabilities"]["clone"]
    assert plain["prediction"] == ("clone" if clone > 0.5 else "other")
    for threshold, label in ((clone - 0.01, "clone"), (clone + 0.01, "other")):
        assert answer(threshold) == plain | {"prediction": label}


def test_what_a_row_has_beside_the_columns_changes_nothing(base: Base, tmp_path: Path) -> None:
    usable, _ = saved_and_loaded(base, tmp_path, _TRANSLATION, {"kind": "permutation_lm", **_WRITER})
    plain = {"text": "a b"}
    assert usable.answer([plain | {"suffix": "c", "other": "d", "id": 7}]) == usable.answer([plain])


def test_damaged_weights_are_refused(base: Base, tmp_path: Path) -> None:
    saved_and_loaded(base, tmp_path, _SEARCH, {"kind": "bi_encoder"})
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model.safetensors is missing or damaged"):
        LoadedSystem.load(tmp_path, "cpu")


def test_a_config_of_another_version_is_refused(base: Base, tmp_path: Path) -> None:
    saved_and_loaded(base, tmp_path, _SEARCH, {"kind": "bi_encoder"})
    path = tmp_path / "system.json"
    values = read_document(path)
    values["system"]["unheard_of"] = 1
    write_document(path, values)
    with pytest.raises(UserError, match="another version of permcode"):
        LoadedSystem.load(tmp_path, "cpu")


def test_weights_of_a_pytorch_gru_are_refused_for_the_papers_unit(base: Base, tmp_path: Path) -> None:
    system = {"kind": "aligned_rnn", "embedding_dim": 8, "state_dim": 8, **_WRITER}
    saved_and_loaded(base, tmp_path, _TRANSLATION, system)
    weights, described = tmp_path / "model.safetensors", tmp_path / "system.json"
    kept = {name: one for name, one in load_file(weights).items() if not name.startswith("encoder.")}
    of_gru = torch.nn.GRU(8, 8, batch_first=True, bidirectional=True).named_parameters()
    save_file(kept | {f"encoder.network.{name}": one.detach() for name, one in of_gru}, weights)
    values = read_document(described)
    values["sha256"]["model.safetensors"] = sha256_file(weights)
    write_document(described, values)
    with pytest.raises(UserError, match="other parameters than the system has in this version of permcode"):
        LoadedSystem.load(tmp_path, "cpu")


def test_a_writer_can_be_reported_to_decode_in_another_way(base: Base, tmp_path: Path) -> None:
    config = TypeAdapter[Any](SystemConfig).validate_python({"kind": "permutation_lm", **_WRITER})
    system = config.build(base, _DATA["write"], 0)
    save_system(tmp_path, config.model_dump(mode="json"), _TRANSLATION, 0, [], base, module_of(system))
    usable = LoadedSystem.load(tmp_path, "cpu", {"beam": 3, "max_new_tokens": 1})
    assert (usable.system_config.decoding.beam, usable.system_config.decoding.length_power) == (3, 1.0)
    tokens = {base.tokenizer.decode([token]) for token in range(base.tokenizer.vocab_size)}
    (short,), (longer,) = (
        one.answer([{"text": "a b"}]) for one in (usable, LoadedSystem.load(tmp_path, "cpu"))
    )
    assert short["prediction"] in {"", *tokens}
    assert longer["prediction"] not in {"", *tokens}
    for changes, reported in (
        ({"beam": 0}, "^decoding.beam: "),
        ({"beams": 2}, "^decoding.beams: "),
        ({"beam": 2, "temperature": 0.5}, "^decoding: beam=2 and temperature=0.5 exclude each other"),
    ):
        with pytest.raises(UserError, match=reported):
            LoadedSystem.load(tmp_path, "cpu", changes)
