"""Vectors of texts from the states of all layers."""

from itertools import product

import numpy as np
import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.layers.conba import ConbaConfig
from finetune.layers.pooling import Pooling, PoolingConfig, statement_means
from finetune.systems.base import Base
from finetune.systems.text_encoder import EncoderConfig, TextEncoder, Truncator, check_length, encoded
from pretrain.inference.embedding import embed_texts
from pretrain.model.config import AbsoluteLearnedPositions, ModelConfig
from pretrain.model.layout import UNFILLED_GROUP
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription

KINDS = ["mean", "max", "attention", "last", "mlp", "conba seed", "conba diagonal"]


def pooling(kind: str, **changed: object) -> Pooling:
    torch.manual_seed(0)
    kind, _, form = kind.partition(" ")
    conba = ConbaConfig.model_validate({"form": form or "seed", "dim": 5})
    config = PoolingConfig.model_validate({"kind": kind, "conba": conba} | changed)
    head = Pooling(config, num_layers=2, model_dim=4)
    for name, parameter in head.named_parameters():
        if not name.endswith(("radius_logit_N", "angle_N")):
            torch.nn.init.normal_(parameter, std=0.5)
    return head


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", ["tokens", "statements"])
def test_padding_changes_nothing(kind: str, places: str) -> None:
    head = pooling(kind, places=places)
    inputs = [torch.randn(2, 9, 4) for _ in range(2)]
    group_BL, statement_BL = torch.zeros(2, 9, dtype=torch.int64), torch.arange(9).expand(2, 9) // 2
    group_BL[1, 6:] = UNFILLED_GROUP
    both = head(inputs, group_BL, statement_BL)
    alone = head([one[1:, :6] for one in inputs], group_BL[1:, :6], statement_BL[1:, :6])
    assert both.shape == (2, head.width)
    torch.testing.assert_close(both[1:], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_tokens_is_zeros(kind: str) -> None:
    group_BL = torch.full((1, 3), UNFILLED_GROUP)
    vector = pooling(kind)([torch.randn(1, 3, 4)] * 2, group_BL, torch.zeros(1, 3, dtype=torch.int64))
    assert not vector.any()


def test_each_kind_by_hand() -> None:
    inputs = [torch.randn(1, 3, 4) for _ in range(2)]
    states = torch.nn.functional.layer_norm(inputs[1], (4,))[0]
    group_BL = torch.tensor([[0, 0, UNFILLED_GROUP]])
    statement_BL = torch.zeros(1, 3, dtype=torch.int64)

    def pooled(kind: str) -> torch.Tensor:
        vector: torch.Tensor = pooling(kind, layers="top")(inputs, group_BL, statement_BL)[0]
        return vector

    torch.testing.assert_close(pooled("mean"), states[:2].mean(dim=0))
    torch.testing.assert_close(pooled("max"), states[:2].amax(dim=0))
    torch.testing.assert_close(pooled("last"), states[1])
    score = pooling("attention", layers="top").score
    assert score is not None
    weight = torch.softmax(score(states[:2])[:, 0], dim=0)
    torch.testing.assert_close(pooled("attention"), weight @ states[:2])
    mlp = pooling("mlp", layers="top").mlp
    assert mlp is not None
    hidden = torch.nn.functional.gelu(states[:2] @ mlp.inner.weight.T + mlp.inner.bias)
    added = hidden @ mlp.outer.weight.T + mlp.outer.bias
    torch.testing.assert_close(pooled("mlp"), (states[:2] + added).mean(dim=0))


def test_a_new_mlp_pooling_is_the_mean_and_the_seeds_layer_alone_changes_the_width() -> None:
    torch.manual_seed(0)
    inputs, group_BL = [torch.randn(1, 3, 4)], torch.zeros(1, 3, dtype=torch.int64)
    heads = [Pooling(PoolingConfig.model_validate({"kind": kind}), 1, 4) for kind in ("mean", "mlp")]
    one, other = (head(inputs, group_BL, group_BL) for head in heads)
    assert torch.equal(one, other)
    for form, width in (("seed", 5), ("diagonal", 8)):
        head = pooling(f"conba {form}")
        assert head.width == width
        assert head([torch.randn(1, 3, 4)] * 2, group_BL, group_BL).shape == (1, width)


def test_statement_means_are_those_of_a_loop() -> None:
    torch.manual_seed(0)
    states, statement_BL = torch.randn(1, 6, 2), torch.tensor([[0, 0, 1, 1, 1, 3]])
    is_text_BL = torch.tensor([[True, True, True, True, False, True]])
    means, has_tokens = statement_means(states, is_text_BL, statement_BL)
    assert has_tokens.tolist() == [[True, True, False, True]]
    torch.testing.assert_close(means[0, 0], states[0, :2].mean(dim=0))
    torch.testing.assert_close(means[0, 1], states[0, 2:4].mean(dim=0))
    torch.testing.assert_close(means[0, 3], states[0, 5])


def test_statements_end_with_line_ends_and_braces(corpus: PreparedCorpus) -> None:
    truncator = Truncator(corpus.tokenizer, torch.device("cpu"))
    row = corpus.tokenizer.encode("a = 1\nb = 2\nc").astype(np.int64)
    statements = truncator.pad([row]).statement_BL[0].tolist()
    assert statements[0] == 0
    assert statements[-1] == 2
    assert statements == sorted(statements)


def test_texts_that_are_cut_are_counted(corpus: PreparedCorpus) -> None:
    truncator = Truncator(corpus.tokenizer, torch.device("cpu"))
    rows = truncator.tokens(["import os\n" * 9, "x", ""], 4, "queries")
    assert [len(row) for row in rows] == [4, 1, 0]
    assert truncator.cut == {"queries": 1}


def base(corpus: PreparedCorpus, model: TwoStreamTransformer) -> Base:
    description = ModelDescription.of(model, 64)
    return Base(description, corpus.tokenizer, None, torch.device("cpu"))


def test_the_mean_of_all_layers_is_the_pretrained_models_own_vector(
    corpus: PreparedCorpus, model: TwoStreamTransformer
) -> None:
    encoder = TextEncoder.build(EncoderConfig(), base(corpus, model), seed=3).eval()
    truncator = Truncator(corpus.tokenizer, torch.device("cpu"))
    rows = truncator.tokens(["def f(x):\n    return x\n", "import os", ""], 64, "texts")
    done: list[int] = []
    vectors = encoded(encoder, truncator, rows, done.append)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    assert sum(done) == 3
    np.testing.assert_allclose(vectors, embed_texts(encoder.network, rows, 64), atol=0.01)  # bfloat16


def test_what_a_vector_does_not_depend_on_is_not_trained(
    corpus: PreparedCorpus, model: TwoStreamTransformer
) -> None:
    truncator = Truncator(corpus.tokenizer, torch.device("cpu"))
    reading = truncator.pad(truncator.tokens(["def f(): pass"], 64, "texts"))
    for layers, adaptation in product(("all", "top", "bottom"), ("full", "lora")):
        config = EncoderConfig(pooling=PoolingConfig(kind="attention", layers=layers), adaptation=adaptation)
        encoder = TextEncoder.build(config, base(corpus, model), seed=3)
        assert encoder.pooling.score is not None
        torch.nn.init.normal_(encoder.pooling.score.weight)
        encoder(reading).square().mul(torch.rand(encoder.pooling.width)).sum().backward()
        for name, parameter in encoder.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name
    config = EncoderConfig(pooling=PoolingConfig(kind="attention"), adaptation="head")
    head = TextEncoder.build(config, base(corpus, model), seed=3)
    assert [name for name, one in head.named_parameters() if one.requires_grad] == ["pooling.score.weight"]
    assert head.depth("network.embedding.weight") == 3
    assert head.depth("network.blocks.0.attention.query.weight") == 2
    assert head.depth("pooling.score.weight") == 0


def test_a_text_longer_than_the_models_positions_is_refused(corpus: PreparedCorpus) -> None:
    config = ModelConfig(memory_tokens=0, positions=AbsoluteLearnedPositions(max_positions=32))
    description = ModelDescription(config, corpus.tokenizer.vocab_size, 32)
    small = Base(description, corpus.tokenizer, None, torch.device("cpu"))
    check_length(EncoderConfig(), small, 32, "query_tokens")
    with pytest.raises(UserError, match="query_tokens need 33 positions"):
        check_length(EncoderConfig(), small, 33, "query_tokens")
