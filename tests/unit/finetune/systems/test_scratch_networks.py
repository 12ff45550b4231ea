"""Networks in the pretrained one's place: the papers' equations, what they see, how large they are."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from data_prep.finished.prepared import PreparedCorpus
from finetune.systems.base import Base
from finetune.systems.network import RecurrentNetworkConfig, TransformerNetworkConfig
from finetune.systems.predictors.left_to_right import LeftToRightConfig
from finetune.systems.saved import count_parameters
from finetune.systems.scratch_networks import (
    EncodingNetwork,
    GatedUnit,
    RecurrentPredictor,
    encoding_network,
    predicting_network,
)
from finetune.systems.text_encoder import EncoderConfig
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from tests.unit.finetune.systems.toys import toy_base

_CONFIGS = (
    RecurrentNetworkConfig(),
    RecurrentNetworkConfig(cell="lstm"),
    TransformerNetworkConfig(),
)


@pytest.fixture
def base(corpus: PreparedCorpus) -> Base:
    return toy_base(corpus.tokenizer, segment_tokens=8)


@pytest.mark.parametrize("config", _CONFIGS, ids=["gru", "lstm", "transformer"])
@pytest.mark.parametrize("make", [encoding_network, predicting_network])
@pytest.mark.parametrize("model_dim", [64, 128])
def test_a_network_has_about_as_many_parameters_as_the_base_models(
    corpus: PreparedCorpus, config: Any, make: Any, model_dim: int
) -> None:
    base = toy_base(corpus.tokenizer, model_dim=model_dim)
    ours = TwoStreamTransformer(base.description.config, base.description.vocab_size)
    found, wanted = count_parameters(make(config, base, 0))[0], count_parameters(ours)[0]
    assert found == pytest.approx(wanted, rel=0.15)


def test_the_gated_unit_is_the_papers_equations() -> None:
    torch.manual_seed(0)
    unit = GatedUnit(6, 5).double()
    rows_BLD = torch.randn(2, 7, 6, dtype=torch.float64)
    proposal, update, reset = unit.from_token.weight.split(5)
    of_proposal, of_update, of_reset = unit.from_token.bias.split(5)
    keep_update, keep_reset = unit.from_state.weight.split(5)
    state_BR, wanted = torch.randn(2, 5, dtype=torch.float64), []
    found = unit(rows_BLD, state_BR)
    for row_BD in rows_BLD.unbind(dim=1):
        z = torch.sigmoid(row_BD @ update.T + state_BR @ keep_update.T + of_update)
        r = torch.sigmoid(row_BD @ reset.T + state_BR @ keep_reset.T + of_reset)
        s = torch.tanh(row_BD @ proposal.T + (r * state_BR) @ unit.from_reset_state.weight.T + of_proposal)
        state_BR = (1 - z) * state_BR + z * s
        wanted.append(state_BR)
    torch.testing.assert_close(found, torch.stack(wanted, dim=1), rtol=1e-12, atol=1e-12)


def test_a_recurrent_predictor_carries_its_state_as_if_there_were_no_segments(base: Base) -> None:
    network = predicting_network(RecurrentNetworkConfig(), base, 0).eval()
    assert isinstance(network, RecurrentPredictor)
    tokens_BL = torch.randint(5, 100, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole_BLV, _ = network.predictions(tokens_BL, network.start(2))
        first_BLV, carried = network.predictions(tokens_BL[:, :5], network.start(2))
        second_BLV, _ = network.predictions(tokens_BL[:, 5:], carried)
    torch.testing.assert_close(torch.cat([first_BLV, second_BLV], dim=1), whole_BLV, rtol=1e-4, atol=1e-5)


def test_a_transformer_predictor_reads_as_far_back_as_the_base_model_remembers(base: Base) -> None:
    network = predicting_network(TransformerNetworkConfig(), base, 0).eval()
    tokens = torch.randint(5, 100, (1, 24), generator=torch.Generator().manual_seed(0))
    memory_tokens = base.description.config.memory_tokens

    def last_segment(tokens_BL: torch.Tensor) -> torch.Tensor:
        carried = network.start(1)
        for first in range(0, 24, 4):
            logits_BLV, carried = network.predictions(tokens_BL[:, first : first + 4], carried)
        return logits_BLV

    def changed(place: int) -> torch.Tensor:
        other = tokens.clone()
        other[0, place] = 4
        return other

    with torch.no_grad():
        before = last_segment(tokens)
        torch.testing.assert_close(before, last_segment(changed(20 - memory_tokens - 1)))
        assert not torch.allclose(before, last_segment(changed(20 - memory_tokens)))


@pytest.mark.parametrize("config", _CONFIGS, ids=["gru", "lstm", "transformer"])
def test_an_encoder_sees_all_of_its_text_and_nothing_beside_it(base: Base, config: Any) -> None:
    network = encoding_network(config, base, 0).eval()

    def top(tokens: list[int], length: int, beside: int) -> torch.Tensor:
        tokens_BL = torch.zeros(2, length, dtype=torch.int64)
        group_BL = torch.full_like(tokens_BL, UNFILLED_GROUP)
        tokens_BL[0, : len(tokens)] = torch.tensor(tokens)
        tokens_BL[1, :beside] = 9
        group_BL[0, : len(tokens)] = 0
        group_BL[1, :beside] = 0
        states = network.read(tokens_BL, TokenLayout.bidirectional(group_BL))
        assert len(states) == network.config.num_layers
        assert {one.shape[-1] for one in states} == {network.config.model_dim}
        return states[-1][0, : len(tokens)]

    text = [5, 6, 7, 8]
    with torch.no_grad():
        alone = top(text, 4, 0)
        torch.testing.assert_close(top(text, 9, 7), alone, rtol=1e-4, atol=1e-5)
        for place, other in ((0, [5, 6, 7, 50]), (3, [50, 6, 7, 8])):
            assert not torch.allclose(top(other, 4, 0)[place], alone[place]), "both sides are seen"


def test_another_network_takes_no_part_of_the_pretrained_one(base: Base) -> None:
    for changes in (
        {},
        {"start": "scratch", "adaptation": "lora"},
        {"start": "scratch", "positions": {"kind": "rotary"}},
    ):
        for config in (EncoderConfig, LeftToRightConfig):
            with pytest.raises(
                ValidationError, match="it needs start=scratch, adaptation=full and no positions"
            ):
                config.model_validate({"network": {"kind": "transformer"}, **changes})
    with pytest.raises(ValidationError, match="bottom is for the base model"):
        EncoderConfig.model_validate(
            {"network": {"kind": "transformer"}, "start": "scratch", "pooling": {"layers": "bottom"}}
        )
    assert isinstance(encoding_network(TransformerNetworkConfig(), base, 0), EncodingNetwork)
