"""Writers with a decoder of their own learn, write what they learnt, and show how they aligned it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.decoding.config import DecodingConfig
from finetune.layers.transformer import StackConfig, WideStackConfig
from finetune.modalities.writing import Pair
from finetune.systems.writers.aligned_rnn import AlignedRnnConfig
from finetune.systems.writers.alignment import Alignment, draw_alignment
from finetune.systems.writers.encoder_decoder import EncoderDecoderConfig
from finetune.systems.writers.from_source import SourceWriter
from finetune.systems.writers.transformer import TransformerWriterConfig
from pretrain.model.config import AbsoluteSinusoidalPositions
from tests.unit.finetune.systems.toys import as_data, hole_pairs, num_exact, toy_base, toy_pairs, train

_LIMITS = {"source_tokens": 48, "target_tokens": 40}
_STACK = {"num_layers": 1, "ffn_dim": 128, "dropout": 0.0}
_RNN = AlignedRnnConfig(
    embedding_dim=48, state_dim=48, alignment_dim=32, readout_dim=48, dropout=0.0, **_LIMITS
)
_TRANSFORMER = TransformerWriterConfig(encoder=WideStackConfig(model_dim=64, **_STACK), **_LIMITS)
_ENCODER_DECODER = EncoderDecoderConfig(start="scratch", decoder=StackConfig(**_STACK), **_LIMITS)
_SYSTEMS: dict[str, Any] = {
    "transformer": _TRANSFORMER,
    "aligned_rnn": _RNN,
    "encoder_decoder": _ENCODER_DECODER,
}
every_system = pytest.mark.parametrize("name", _SYSTEMS)


def _writer(corpus: PreparedCorpus, name: str, pairs: list, **changes: object) -> SourceWriter:  # type: ignore[type-arg]
    config = _SYSTEMS[name]
    config = type(config).model_validate(config.model_dump() | changes)
    return config.build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)


@every_system
def test_learns_texts_and_holes_and_writes_them_with_and_without_a_beam(
    corpus: PreparedCorpus, name: str
) -> None:
    pairs = [*toy_pairs(15), *hole_pairs(15)]
    writer = _writer(corpus, name, pairs)
    train(writer.learner, 150)
    assert num_exact(writer, pairs) == 30
    beam = _writer(corpus, name, pairs, decoding=DecodingConfig(beam=3, batch=7))
    beam.network.load_state_dict(writer.network.state_dict())
    beam.network.eval()
    assert num_exact(beam, pairs) == 30


@every_system
def test_computes_in_bfloat16_and_takes_its_loss_in_float32(corpus: PreparedCorpus, name: str) -> None:
    learner = _writer(corpus, name, toy_pairs(6)).learner
    batch = learner.batch(range(6), draw=0)
    exact = learner.module(batch)
    rounded = learner.module.to(torch.bfloat16)(batch)
    assert rounded.dtype == torch.float32
    assert abs((rounded - exact).item()) < 0.05
    rounded.backward()
    reached = [name for name, one in learner.module.named_parameters() if one.grad is not None]
    wanted = [name for name, one in learner.module.named_parameters() if one.requires_grad]
    assert reached == wanted, "every trained parameter, and no other, gets a gradient"


@every_system
def test_every_parameter_has_a_depth_and_the_embedding_is_deepest(corpus: PreparedCorpus, name: str) -> None:
    learner = _writer(corpus, name, toy_pairs(2)).learner
    depth = {name: learner.depth(name) for name, _ in learner.module.named_parameters()}
    assert min(depth.values()) == 0
    deepest = {name for name, value in depth.items() if value == max(depth.values())}
    assert any("embedding" in name for name in deepest)
    blocks = [value for parameter, value in depth.items() if parameter.startswith("decoder.")]
    encoder = [value for parameter, value in depth.items() if parameter.startswith("encoder.blocks.")]
    assert all(value > max(blocks) for value in encoder)


@every_system
def test_lengths_and_cuts_are_those_of_what_is_read(corpus: PreparedCorpus, name: str) -> None:
    pairs = toy_pairs(4)
    writer = _writer(corpus, name, pairs, source_tokens=5, target_tokens=4)
    assert writer.cut == {"train_sources": 4, "train_targets": 4}
    assert writer.learner.lengths_tokens == [5 + 1 + 4] * 4
    assert _writer(corpus, name, pairs).cut == {"train_sources": 0, "train_targets": 0}


def test_the_encoder_alone_is_frozen_or_adapted(corpus: PreparedCorpus) -> None:
    for adaptation, wanted in (("frozen", set()), ("lora", {"a_RI", "b_OR"})):
        network = _writer(corpus, "encoder_decoder", toy_pairs(2), adaptation=adaptation).network
        trained = {name for name, one in network.named_parameters() if one.requires_grad}
        of_encoder = {name for name in trained if name.startswith("encoder.")}
        assert {name.rsplit(".", 1)[1] for name in of_encoder} == wanted
        assert {name.split(".")[0] for name in trained - of_encoder} == {
            "decoder",
            "vocabulary",
            "source_norm",
        }


def test_the_decoder_begins_with_the_encoders_embedding(corpus: PreparedCorpus) -> None:
    network = _writer(corpus, "encoder_decoder", toy_pairs(2)).network
    weights = [one for name, one in network.named_parameters() if name.endswith("embedding.weight")]
    assert len(weights) == 2
    assert torch.equal(*weights)


def test_shapes_that_do_not_fit_are_reported(corpus: PreparedCorpus) -> None:
    with pytest.raises(ValidationError, match="model_dim must be a multiple of 2 \\* num_heads=8, got 12"):
        WideStackConfig(model_dim=12)
    with pytest.raises(ValidationError, match="beam=2 and temperature=0.5 exclude each other"):
        DecodingConfig(beam=2, temperature=0.5)
    with pytest.raises(UserError, match="decoder.num_heads=3 does not divide this model's 64 dimensions"):
        _writer(corpus, "encoder_decoder", toy_pairs(2), decoder=StackConfig(num_heads=3))
    base = toy_base(corpus.tokenizer, AbsoluteSinusoidalPositions(), segment_tokens=32)
    with pytest.raises(UserError, match="source_tokens=48 need 50 positions, .* has 32"):
        _ENCODER_DECODER.build(base, as_data(toy_pairs(2)), seed=0)


def test_alignments_of_a_copying_network_lie_on_the_diagonal(corpus: PreparedCorpus) -> None:
    """Sources written in their own order: attention must learn to walk along."""
    rng = np.random.default_rng(0)
    pairs = [
        Pair(str(number), text, (text,))
        for number, text in enumerate(" ".join(rng.choice(list("abcdexyz"), size=8)) for _ in range(200))
    ]
    writer = _RNN.build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)
    train(writer.learner, 200, rate=5e-3, batch=20)
    found = writer.alignment(pairs[0].source, pairs[0].source)
    assert found.weight_TS.shape == (len(found.target), len(found.source))
    np.testing.assert_allclose(found.weight_TS.sum(axis=1), 1.0, rtol=1e-5)
    assert "".join(found.source[:-1]) == pairs[0].source
    assert found.source[-1] == found.target[-1] == "<end>"
    place_T = np.arange(len(found.target))
    expected_T = (found.weight_TS * np.arange(len(found.source))).sum(axis=1)
    assert np.corrcoef(place_T, expected_T)[0, 1] > 0.9
    assert writer.alignment(pairs[0].source).target == found.target, "what it writes itself"


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_draws_an_alignment_whatever_the_tokens(tmp_path: Path, suffix: str) -> None:
    tokens = ("$x$", " ", "\n", "\t", "\x7f", "\x9c", "\u4e2d", "_{", "\\frac", "<end>")
    alignment = Alignment(tokens, tokens, np.eye(len(tokens), dtype=np.float32))
    path = draw_alignment(alignment, tmp_path / f"picture.{suffix}")
    if suffix == "png":
        with Image.open(path) as image:
            assert min(image.size) > 200
            assert len(set(image.convert("L").tobytes())) > 2
    else:
        assert path.read_text().count("<image") == 1
    (tmp_path / "again").mkdir()
    again = draw_alignment(alignment, tmp_path / "again" / path.name)
    assert again.read_bytes() == path.read_bytes()
