"""A model is found in any folder that holds one, and files that do not fit are refused."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.errors import UserError
from cluster.storage import read_document, sha256_file, write_document
from data_prep.finished.prepared import PreparedCorpus
from pretrain.checkpoint import verify
from pretrain.checkpoint.listing import Listing
from pretrain.checkpoint.snapshot import StaticFiles
from pretrain.hf.export_import import export_to_hf
from pretrain.inference.folders import find_model_folder
from pretrain.inference.language_model import PermutationLM
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription, save_model
from tests import checkpoints
from tests.unit.pretrain.inference.conftest import SEGMENT

WEIGHTS = "weights-00000.safetensors"


@pytest.fixture
def run(tmp_path: Path, text_corpus: PreparedCorpus, network: TwoStreamTransformer) -> Path:
    """A run's folder whose pretraining is finished."""
    save_model(
        network,
        tmp_path / "run" / "pretrain-0123" / "model",
        text_corpus.folder / "tokenizer.json",
        segment_tokens=SEGMENT,
    )
    return tmp_path / "run"


def write_checkpoint(
    stage: Path, step: int, network: TwoStreamTransformer, text_corpus: PreparedCorpus
) -> Path:
    tokenizer = (text_corpus.folder / "tokenizer.json").read_bytes()
    static = StaticFiles.of_pretraining(
        checkpoints.IDENTITY, ModelDescription.of(network, SEGMENT), tokenizer
    )
    weights = dict(network.named_parameters())
    return checkpoints.write_checkpoint(
        stage / "checkpoints", step, world_size=2, static=static, weights=weights
    )


def test_a_model_is_found_from_every_folder_that_has_it(run: Path, lm: PermutationLM) -> None:
    wanted = lm.complete("def f(", max_new_tokens=4)[0].text
    for folder in (run, run / "pretrain-0123", run / "pretrain-0123" / "model"):
        loaded = PermutationLM.from_run(folder, device="cpu")
        assert loaded.segment_tokens == SEGMENT
        assert loaded.complete("def f(", max_new_tokens=4)[0].text == wanted


def test_a_run_in_training_gives_its_newest_valid_checkpoint(
    tmp_path: Path, lm: PermutationLM, text_corpus: PreparedCorpus
) -> None:
    stage = tmp_path / "run" / "pretrain-0123"
    wanted = lm.complete("def f(", max_new_tokens=4)[0].text
    first = write_checkpoint(stage, 1, lm.network, text_corpus)
    second = write_checkpoint(stage, 2, lm.network, text_corpus)
    for folder in (stage.parent, stage, first):
        loaded = PermutationLM.from_run(folder, device="cpu")
        assert loaded.segment_tokens == SEGMENT
        assert loaded.complete("def f(", max_new_tokens=4)[0].text == wanted
    assert find_model_folder(stage).folder == second
    (second / WEIGHTS).write_bytes(b"")
    reported: list[str] = []
    assert find_model_folder(stage, reported.append).folder == first
    assert WEIGHTS in reported[0]
    with pytest.raises(UserError, match=f"{WEIGHTS} is damaged"):
        PermutationLM.from_run(second)


def test_skipped_damaged_checkpoints_are_reported_by_every_lookup(
    tmp_path: Path, lm: PermutationLM, text_corpus: PreparedCorpus
) -> None:
    stage = tmp_path / "run" / "pretrain-0123"
    first, second = (write_checkpoint(stage, step, lm.network, text_corpus) for step in (1, 2))
    (second / WEIGHTS).write_bytes(b"")
    reported: list[str] = []
    PermutationLM.from_run(stage.parent, device="cpu", on_damaged=reported.append)
    assert export_to_hf(stage, tmp_path / "hf", reported.append).folder == first
    assert len(reported) == 2
    assert all(f"step-00000002: {WEIGHTS} is damaged" in text for text in reported)


def test_a_checkpoint_is_hashed_once(
    tmp_path: Path, lm: PermutationLM, text_corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "pretrain-0123", 1, lm.network, text_corpus)
    hashed: list[Path] = []

    def sha256(path: Path) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr(verify, "sha256_file", sha256)
    for folder in (tmp_path / "run", checkpoint):
        hashed.clear()
        PermutationLM.from_run(folder, device="cpu")
        assert len(hashed) == len(set(hashed)) > 0


def test_a_stage_without_a_usable_checkpoint_is_skipped_for_an_older_one(
    tmp_path: Path, lm: PermutationLM, text_corpus: PreparedCorpus
) -> None:
    old, newer, newest = (tmp_path / "run" / f"pretrain-{number}" for number in range(3))
    wanted = write_checkpoint(old, 1, lm.network, text_corpus)
    (write_checkpoint(newer, 1, lm.network, text_corpus) / WEIGHTS).write_bytes(b"")
    (write_checkpoint(newest, 1, lm.network, text_corpus) / "model.json").unlink()
    Listing(1, {}).write(newest / "checkpoints" / "step-00000001")
    for number, stage in enumerate((old, newer, newest)):
        os.utime(stage, (number, number))
    reported: list[str] = []
    assert find_model_folder(tmp_path / "run", reported.append).folder == wanted
    assert all(any(str(stage) in text for text in reported) for stage in (newer, newest))
    shutil.rmtree(old)
    with pytest.raises(UserError, match="pretrain-2.* has no model.json"):
        find_model_folder(tmp_path / "run")


def test_folders_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        PermutationLM.from_run(tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no model"):
        PermutationLM.from_run(tmp_path)


def _other_shape(model: Path) -> None:
    config = read_document(model / "config.json")
    config["model"]["ffn_dim"] += 8
    write_document(model / "config.json", config)


def _write_weights(model: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, model / "model.safetensors")
    config = read_document(model / "config.json")
    config["sha256"]["model.safetensors"] = sha256_file(model / "model.safetensors")
    write_document(model / "config.json", config)


def _without_a_tensor(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    del tensors["query_start_D"]
    _write_weights(model, tensors)


def _other_vocabulary(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    for name in ("embedding.weight", "output_bias_V"):
        tensors[name] = torch.cat([tensors[name], tensors[name][:1]])
    config = read_document(model / "config.json")
    config["vocab_size"] += 1
    write_document(model / "config.json", config)
    _write_weights(model, tensors)


def _not_finite(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["query_start_D"][3] = torch.nan
    _write_weights(model, tensors)


def _other_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").write_text("{}")


def _newer_format(model: Path) -> None:
    write_document(model / "config.json", read_document(model / "config.json") | {"format": 99})


def _foreign_config(model: Path) -> None:
    write_document(model / "config.json", {"model_type": "xlnet"})


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
def test_a_folder_with_files_that_do_not_fit_is_refused_in_one_line(
    run: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(run / "pretrain-0123" / "model")
    with pytest.raises(UserError, match=message) as caught:
        PermutationLM.from_run(run)
    assert "\n" not in str(caught.value)
