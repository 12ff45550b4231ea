"""Text in, text out, from any folder that holds a model."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.errors import UserError
from cluster.storage import read_json, sha256_file, write_json
from data_prep.documents import SPECIAL_TOKENS
from data_prep.prepared import PreparedCorpus
from pretrain.checkpoint import finding
from pretrain.checkpoint.snapshot import StaticFiles
from pretrain.hf.exporting import export_to_hf
from pretrain.inference.folders import find_model_folder
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.sampling import Sampling
from pretrain.inference.session import DecodingSession
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription, save_model
from tests import commits
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

SEGMENT = 48
WEIGHTS = "weights-00000.safetensors"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("prep")
    return write_corpus(
        folder, {split: stdlib_packages(["string"]) for split in ("train", "validation", "test")}
    )


@pytest.fixture(scope="module")
def network(corpus: PreparedCorpus) -> TwoStreamTransformer:
    return tiny_model(corpus.tokenizer.vocab_size).eval()


@pytest.fixture(scope="module")
def lm(corpus: PreparedCorpus, network: TwoStreamTransformer) -> PermutationLM:
    return PermutationLM(network, corpus.tokenizer, SEGMENT)


@pytest.fixture
def run(tmp_path: Path, corpus: PreparedCorpus, network: TwoStreamTransformer) -> Path:
    """A run's folder whose pretraining is finished."""
    save_model(
        network,
        tmp_path / "run" / "pretrain-0123" / "model",
        corpus.folder / "tokenizer.json",
        segment_tokens=SEGMENT,
    )
    return tmp_path / "run"


def write_commit(stage: Path, step: int, network: TwoStreamTransformer, corpus: PreparedCorpus) -> Path:
    tokenizer = (corpus.folder / "tokenizer.json").read_bytes()
    static = StaticFiles.of_pretraining(commits.IDENTITY, ModelDescription.of(network, SEGMENT), tokenizer)
    weights = dict(network.named_parameters())
    return commits.write_commit(stage / "checkpoints", step, world_size=2, static=static, weights=weights)


def test_a_model_is_found_from_every_folder_that_has_it(run: Path, lm: PermutationLM) -> None:
    task = run / "completion-4567" / "pretrained"
    task.mkdir(parents=True)
    shutil.copytree(run / "pretrain-0123" / "model", task / "model")
    wanted = lm.complete("def f(", max_new_tokens=4)[0].text
    for folder in (run, run / "pretrain-0123", run / "pretrain-0123" / "model", task.parent, task):
        loaded = PermutationLM.from_run(folder, device="cpu")
        assert loaded.segment_tokens == SEGMENT
        assert loaded.complete("def f(", max_new_tokens=4)[0].text == wanted


def test_a_run_in_training_gives_its_newest_valid_checkpoint(
    tmp_path: Path, lm: PermutationLM, corpus: PreparedCorpus
) -> None:
    stage = tmp_path / "run" / "pretrain-0123"
    wanted = lm.complete("def f(", max_new_tokens=4)[0].text
    first = write_commit(stage, 1, lm.network, corpus)
    second = write_commit(stage, 2, lm.network, corpus)
    for folder in (stage.parent, stage, first):
        loaded = PermutationLM.from_run(folder, device="cpu")
        assert loaded.segment_tokens == SEGMENT
        assert loaded.complete("def f(", max_new_tokens=4)[0].text == wanted
    assert find_model_folder(stage).folder == second
    (second / WEIGHTS).write_bytes(b"")
    told: list[str] = []
    assert find_model_folder(stage, told.append).folder == first
    assert WEIGHTS in told[0]
    with pytest.raises(UserError, match=f"{WEIGHTS} is damaged"):
        PermutationLM.from_run(second)


def test_damaged_checkpoints_passed_over_are_told_whoever_asks(
    tmp_path: Path, lm: PermutationLM, corpus: PreparedCorpus
) -> None:
    stage = tmp_path / "run" / "pretrain-0123"
    first, second = (write_commit(stage, step, lm.network, corpus) for step in (1, 2))
    (second / WEIGHTS).write_bytes(b"")
    told: list[str] = []
    PermutationLM.from_run(stage.parent, device="cpu", on_damaged=told.append)
    assert export_to_hf(stage, tmp_path / "hf", told.append).folder == first
    assert len(told) == 2
    assert all(f"step-00000002: {WEIGHTS} is damaged" in text for text in told)


def test_a_checkpoint_is_hashed_once(
    tmp_path: Path, lm: PermutationLM, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = write_commit(tmp_path / "run" / "pretrain-0123", 1, lm.network, corpus)
    hashed: list[Path] = []

    def sha256(path: Path) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr(finding, "sha256_file", sha256)
    for folder in (tmp_path / "run", commit):
        hashed.clear()
        PermutationLM.from_run(folder, device="cpu")
        assert len(hashed) == len(set(hashed)) > 0


def test_a_stage_without_a_usable_checkpoint_gives_way_to_an_older_one(
    tmp_path: Path, lm: PermutationLM, corpus: PreparedCorpus
) -> None:
    old, newer, newest = (tmp_path / "run" / f"pretrain-{number}" for number in range(3))
    wanted = write_commit(old, 1, lm.network, corpus)
    (write_commit(newer, 1, lm.network, corpus) / WEIGHTS).write_bytes(b"")
    (write_commit(newest, 1, lm.network, corpus) / "model.json").unlink()
    (newest / "checkpoints" / "step-00000001" / "COMMIT.json").write_text(
        '{"format": 2, "step": 1, "files": {}}'
    )
    for number, stage in enumerate((old, newer, newest)):
        os.utime(stage, (number, number))
    told: list[str] = []
    assert find_model_folder(tmp_path / "run", told.append).folder == wanted
    assert all(any(str(stage) in text for text in told) for stage in (newer, newest))
    shutil.rmtree(old)
    with pytest.raises(UserError, match="pretrain-2.* does not say what model it is of"):
        find_model_folder(tmp_path / "run")


def test_folders_without_a_model_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        PermutationLM.from_run(tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no model"):
        PermutationLM.from_run(tmp_path)


def _other_shape(model: Path) -> None:
    config = read_json(model / "config.json")
    config["model"]["ffn_dim"] += 8
    write_json(model / "config.json", config)


def _write_weights(model: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, model / "model.safetensors")
    config = read_json(model / "config.json")
    config["sha256"]["model.safetensors"] = sha256_file(model / "model.safetensors")
    write_json(model / "config.json", config)


def _without_a_tensor(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    del tensors["query_start_D"]
    _write_weights(model, tensors)


def _other_vocabulary(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    for name in ("embedding.weight", "output_bias_V"):
        tensors[name] = torch.cat([tensors[name], tensors[name][:1]])
    config = read_json(model / "config.json")
    config["vocab_size"] += 1
    write_json(model / "config.json", config)
    _write_weights(model, tensors)


def _not_finite(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["query_start_D"][3] = torch.nan
    _write_weights(model, tensors)


def _other_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").write_text("{}")


def _newer_format(model: Path) -> None:
    write_json(model / "config.json", read_json(model / "config.json") | {"format": 99})


def _foreign_config(model: Path) -> None:
    write_json(model / "config.json", {"model_type": "xlnet"})


def _cut_config(model: Path) -> None:
    (model / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_other_shape, r"blocks\.0\.feed_forward\.up\.weight has shape \(64, 32\), not \(72, 32\)"),
        (_without_a_tensor, "query_start_D is missing"),
        (_not_finite, r"model\.safetensors cannot be used: query_start_D has numbers that are not finite"),
        (_other_vocabulary, r"the tokenizer has \d+ tokens and the model \d+"),
        (_other_tokenizer, r"tokenizer\.json is missing or damaged"),
        (_newer_format, "another version of permcode"),
        (_foreign_config, "does not describe a model"),
        (_cut_config, "is damaged"),
    ],
)
def test_a_folder_that_does_not_fit_itself_is_told_in_one_line(
    run: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(run / "pretrain-0123" / "model")
    with pytest.raises(UserError, match=message) as caught:
        PermutationLM.from_run(run)
    assert "\n" not in str(caught.value)


def test_completions_come_in_the_order_of_prompts_whatever_the_batch(lm: PermutationLM) -> None:
    prompts = ["def f(", "import string\n" * 30, "x", "class A:\n"]
    sampling = Sampling(0.9, seed=1)
    together = lm.complete(prompts, max_new_tokens=12, sampling=sampling, num_samples=2)
    narrow = lm.complete(prompts, max_new_tokens=12, sampling=sampling, num_samples=2, max_lanes=1)
    for other in (
        narrow,
        lm.complete(prompts, max_new_tokens=12, sampling=sampling, num_samples=2, max_lanes=5),
    ):
        assert [one.text for one in together] == [one.text for one in other]
    assert [one.data for one in together] == [one.data for one in narrow]


def test_no_more_lanes_than_allowed_are_decoded_side_by_side(
    lm: PermutationLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[int] = []
    whole = lm.complete(["x", "def f("], max_new_tokens=4, sampling=Sampling(0.9), num_samples=5)
    advance = DecodingSession.repeat_lanes

    def repeat(session: DecodingSession, times: int) -> None:
        advance(session, times)
        lanes.append(len(session.offset_B))

    monkeypatch.setattr(DecodingSession, "repeat_lanes", repeat)
    told = [""] * 10

    def show(number: int, text: str) -> None:
        told[number] += text

    found = lm.complete(
        ["x", "def f("], max_new_tokens=4, sampling=Sampling(0.9), num_samples=5, max_lanes=3, on_text=show
    )
    assert [one.text for one in found] == [one.text for one in whole] == told
    assert lanes == [3, 2, 3, 2]


def test_streamed_text_is_the_completions_text(lm: PermutationLM) -> None:
    told = ["", "", ""]

    def show(number: int, text: str) -> None:
        told[number] += text

    found = lm.complete(["def f(", "x", "y"], max_new_tokens=12, on_text=show, max_lanes=2)
    assert told == [one.text for one in found]


def test_a_stop_string_ends_the_text_before_it(lm: PermutationLM) -> None:
    free = lm.complete("def f(", max_new_tokens=12)[0]
    stop = free.text[3:5]
    found = lm.complete("def f(", max_new_tokens=12, stop=[stop])[0]
    assert found.finish == "stop"
    assert found.text == free.text[: free.text.index(stop)]
    beam = lm.complete("def f(", max_new_tokens=12, stop=[stop], beam=1)[0]
    assert (beam.text, beam.finish) == (found.text, "stop")


def test_texts_of_a_beam_that_are_alike_before_their_stop_are_one(lm: PermutationLM) -> None:
    free = lm.complete("def f(", max_new_tokens=6, beam=4, num_samples=4)
    stop = free[0].data[-1:]
    wanted = list(dict.fromkeys(one.data.split(stop)[0] for one in free))
    assert len(wanted) < 4, "the texts must differ behind the stop, or this tests nothing"
    found = lm.complete("def f(", max_new_tokens=6, beam=4, num_samples=4, stop=stop)
    assert [one.data for one in found] == wanted
    assert found[0].log_likelihood == free[0].log_likelihood
    assert lm.complete("def f(", max_new_tokens=6, beam=4, num_samples=2, stop=[stop]) == found[:2]


def test_a_single_stop_string_is_one(lm: PermutationLM) -> None:
    stop = lm.complete("def f(", max_new_tokens=12)[0].text[3:5]
    for beam in (None, 1):
        wanted = lm.complete("def f(", max_new_tokens=12, stop=[stop], beam=beam)
        for one in (stop, stop.encode()):
            assert lm.complete("def f(", max_new_tokens=12, stop=one, beam=beam) == wanted


def test_special_tokens_are_never_written(lm: PermutationLM) -> None:
    with torch.no_grad():
        bias_V = lm.network.output_bias_V.clone()
        lm.network.output_bias_V[2 : len(SPECIAL_TOKENS)] = 50.0
        try:
            found = lm.complete("def f(", max_new_tokens=6, sampling=Sampling(1.0))
            found += lm.infill("def f(", "pass", length=5, order="most_certain", at_once=2)
        finally:
            lm.network.output_bias_V.copy_(bias_V)
    for one in found:
        assert one.data or one.finish == "end"
        assert one.num_tokens == 0 or len(one.data) > 0


def test_the_end_of_the_document_ends_a_completion(lm: PermutationLM) -> None:
    with torch.no_grad():
        lm.network.output_bias_V[lm.tokenizer.eod_id] += 100.0
        try:
            found = lm.complete("def f(", max_new_tokens=6)[0]
        finally:
            lm.network.output_bias_V[lm.tokenizer.eod_id] -= 100.0
    assert (found.text, found.num_tokens, found.finish) == ("", 0, "end")


@pytest.mark.parametrize(
    "options",
    [
        {"length": 5},
        {"length": 5, "beam": 3},
        {"length": 5, "order": "most_certain", "at_once": 2},
        {"max_new_tokens": 9},
        {"max_new_tokens": 9, "beam": 3},
        {"max_new_tokens": 9, "sampling": Sampling(0.9)},
    ],
)
def test_holes_are_filled_with_as_many_tokens_as_wanted(
    lm: PermutationLM, options: dict[str, object]
) -> None:
    found = lm.infill("def f(", "):\n    return x\n", **options)[0]  # type: ignore[arg-type]
    if "length" in options:
        assert (found.num_tokens, found.finish) == (5, "length")
    else:
        assert found.num_tokens <= 9
        assert found.finish in ("end", "length")
    assert found.log_likelihood < 0


@pytest.mark.parametrize("beam", [None, 3])
def test_a_hole_that_the_model_would_fill_further_is_cut(lm: PermutationLM, beam: int | None) -> None:
    end = lm.tokenizer.special_id("<end_hole>")
    for bias, finish in ((-50.0, "length"), (50.0, "end")):
        with torch.no_grad():
            lm.network.output_bias_V[end] += bias
            try:
                found = lm.infill("def f(", "):\n    return x\n", max_new_tokens=5, beam=beam)[0]
            finally:
                lm.network.output_bias_V[end] -= bias
        assert found.finish == finish


def test_several_holes_are_filled_one_after_the_other(lm: PermutationLM) -> None:
    parts = ["def ", "(x):\n", " return x\n"]
    found = lm.infill_holes(parts, length=3)
    assert found[0].data == lm.infill(parts[0], parts[1] + parts[2], length=3)[0].data
    assert len(found) == 2


def test_bad_requests_are_told(lm: PermutationLM) -> None:
    for prompts in ("", [], ["a", ""]):
        with pytest.raises(UserError, match="prompt is empty"):
            lm.complete(prompts)
    with pytest.raises(UserError, match="number of samples"):
        lm.complete("a", num_samples=0)
    with pytest.raises(UserError, match="number of samples must be at most 1048576"):
        lm.complete("a", num_samples=10**12)
    with pytest.raises(UserError, match="a beam must be at most 1024 texts wide"):
        lm.complete("a", beam=10**12)
    with pytest.raises(UserError, match="a hole can be filled 1024 times at once"):
        lm.infill("a", "b", length=2, num_samples=10**6)
    with pytest.raises(UserError, match="a beam of 2 cannot give 3"):
        lm.complete("a", beam=2, num_samples=3)
    with pytest.raises(UserError, match="needs a hole of known length"):
        lm.infill("a", "b", order="most_certain")
    with pytest.raises(UserError, match="order must be one of most_certain, left_to_right, got 'surest'"):
        lm.infill("a", "b", length=2, order="surest")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="parts must be several texts, got one"):
        lm.infill_holes("ab")
    with pytest.raises(UserError, match="the text has no hole"):
        lm.infill_holes(["a"])


def test_scores_and_vectors_come_from_the_same_model(lm: PermutationLM) -> None:
    assert lm.score("import string\n")[0].scores.log_likelihood < 0
    vectors = lm.embed(["import string\n", "def f(): pass"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
