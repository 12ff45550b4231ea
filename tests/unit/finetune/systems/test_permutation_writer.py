"""The permutation LM as a writer learns, writes what it learnt, and trains only what it should."""

import dataclasses

import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.decoding.config import DecodingConfig
from finetune.systems.writers.permutation_lm import (
    PermutationWriter,
    PermutationWriterConfig,
)
from pretrain.model.config import AbsoluteLearnedPositions
from tests.unit.finetune.systems.toys import (
    as_data,
    hole_pairs,
    num_exact,
    toy_base,
    toy_pairs,
    train,
    written,
)

_CONFIG = PermutationWriterConfig(
    start="scratch", source_tokens=48, target_tokens=40, label_smoothing=0.0, lora_rank=4
)


def _writer(corpus: PreparedCorpus, pairs: list, **changes: object) -> PermutationWriter:  # type: ignore[type-arg]
    config = PermutationWriterConfig.model_validate(_CONFIG.model_dump() | changes)
    return config.build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)


def test_learns_pairs_and_writes_them_with_and_without_a_beam(corpus: PreparedCorpus) -> None:
    pairs = toy_pairs()
    writer = _writer(corpus, pairs)
    train(writer.learner, 150)
    assert num_exact(writer, pairs) == 30
    beam = _writer(corpus, pairs, decoding=DecodingConfig(beam=3, batch=7))
    beam.learner.module.load_state_dict(writer.learner.module.state_dict())
    beam.learner.module.eval()
    assert num_exact(beam, pairs) == 30


def test_learns_to_fill_holes(corpus: PreparedCorpus) -> None:
    pairs = hole_pairs()
    writer = _writer(corpus, pairs)
    train(writer.learner, 250)
    assert num_exact(writer, pairs) >= 28
    assert num_exact(writer, [*pairs[:3], *toy_pairs(1)]) >= 2, "holes and texts to go on may be mixed"


def test_writing_does_not_depend_on_the_batch(corpus: PreparedCorpus) -> None:
    pairs = toy_pairs(9)
    sampled = {"temperature": 1.0, "max_new_tokens": 12, "top_k": 50, "top_p": 0.9}
    all_at_once = written(_writer(corpus, pairs, decoding=DecodingConfig(batch=9, **sampled)), pairs)
    one_by_one = written(_writer(corpus, pairs, decoding=DecodingConfig(batch=1, **sampled)), pairs)
    assert all_at_once == one_by_one
    assert len(set(all_at_once)) > 1


def test_low_rank_trains_nothing_else(corpus: PreparedCorpus) -> None:
    pairs = toy_pairs(6)
    writer = _writer(corpus, pairs, adaptation="lora")
    module = writer.learner.module
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".parametrizations.weight.0." in name for name in trained)
    frozen = {name: value.clone() for name, value in module.state_dict().items() if name not in trained}
    first = train(writer.learner, 1)
    assert train(writer.learner, 60) < first - 0.5
    for name, value in frozen.items():
        assert torch.equal(module.state_dict()[name], value), name
    for name in trained:
        if name.endswith("b_OR"):
            assert module.state_dict()[name].abs().max() > 0, f"{name} was never reached"


def test_low_rank_changes_reach_what_is_written(corpus: PreparedCorpus) -> None:
    pairs = toy_pairs(4)
    writer = _writer(corpus, pairs, adaptation="lora", lora_rank=32)
    train(writer.learner, 200, rate=1e-2, batch=4)
    assert num_exact(writer, pairs) == 4


def test_the_head_alone_is_trained(corpus: PreparedCorpus) -> None:
    module = _writer(corpus, toy_pairs(3), adaptation="head").learner.module
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert trained == {"network.embedding.weight", "network.output_bias_V"}


def test_layers_lie_below_the_head(corpus: PreparedCorpus) -> None:
    learner = _writer(corpus, toy_pairs(3)).learner
    depth = {name: learner.depth(name) for name, _ in learner.module.named_parameters()}
    assert depth["network.output_bias_V"] == 0
    assert depth["network.blocks.1.attention.query.weight"] == 1
    assert depth["network.blocks.0.attention.query.weight"] == 2
    assert depth["network.embedding.weight"] == depth["network.query_start_D"] == 3
    learner = _writer(corpus, toy_pairs(3), adaptation="lora").learner
    assert learner.depth("network.blocks.0.attention.query.parametrizations.weight.0.a_RI") == 2


def test_a_batch_is_a_function_of_the_draw(corpus: PreparedCorpus) -> None:
    learner = _writer(corpus, hole_pairs(8)).learner
    position = [learner.batch(range(8), draw).content.position_BX for draw in (1, 1, 2)]
    assert torch.equal(position[0], position[1])
    assert position[0].shape != position[2].shape or not torch.equal(position[0], position[2])


def test_loss_in_bfloat16_is_nearly_that_in_float32(corpus: PreparedCorpus) -> None:
    learner = _writer(corpus, toy_pairs(5)).learner
    batch = learner.batch(range(5), draw=0)
    exact = learner.module(batch)
    rounded = learner.module.to(torch.bfloat16)(batch)
    assert rounded.dtype == torch.float32
    assert abs((rounded - exact).item()) < 0.05
    rounded.backward()


def test_cuts_are_counted_and_a_cut_target_has_no_end(corpus: PreparedCorpus) -> None:
    pairs = toy_pairs(4)
    writer = _writer(corpus, pairs, source_tokens=5, target_tokens=4, decoding={"max_new_tokens": 2})
    assert writer.cut == {"train_sources": 4, "train_targets": 4}
    batch = writer.learner.batch(range(4), draw=0)
    assert corpus.tokenizer.eod_id not in batch.wanted_X.tolist()
    written(writer, [*pairs[:2], dataclasses.replace(pairs[0], source="a")])
    assert writer.cut["written_sources"] == 2


def test_texts_longer_than_absolute_positions_are_refused(corpus: PreparedCorpus) -> None:
    base = toy_base(corpus.tokenizer, AbsoluteLearnedPositions(max_positions=64))
    with pytest.raises(UserError, match="source_tokens=48 and target_tokens=40 need 123 positions.* has 64"):
        _CONFIG.build(base, as_data(toy_pairs(2)), seed=0)
