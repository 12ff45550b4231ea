"""Which parameters decay, and which learn slower."""

import pytest
import torch

from pretrain.config import OptimizerConfig
from pretrain.engine.optimizer import adamw, parameter_groups, set_learning_rate
from pretrain.model.transformer import TwoStreamTransformer
from tests.small_models import small_model


def shares_and_decays(
    model: TwoStreamTransformer, settings: OptimizerConfig
) -> dict[str, tuple[float, float]]:
    by_parameter = {
        id(parameter): (group["rate_share"], group["weight_decay"])
        for group in parameter_groups(model, settings)
        for parameter in group["params"]  # type: ignore[attr-defined]
    }
    return {name: by_parameter[id(parameter)] for name, parameter in model.named_parameters()}  # type: ignore[misc]


def test_matrices_decay_and_vectors_do_not() -> None:
    model = small_model(norm="pre")
    reported = shares_and_decays(model, OptimizerConfig(weight_decay=0.25))
    for name, parameter in model.named_parameters():
        assert reported[name] == (1.0, 0.25 if parameter.dim() >= 2 else 0.0), name


def test_every_parameter_is_in_one_group() -> None:
    model = small_model(norm="pre")
    groups = parameter_groups(model, OptimizerConfig(layer_decay=0.5))
    listed = [id(parameter) for group in groups for parameter in group["params"]]  # type: ignore[attr-defined]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())
    assert len(parameter_groups(model, OptimizerConfig())) == 2


def test_lower_layers_learn_slower() -> None:
    reported = shares_and_decays(small_model(norm="pre"), OptimizerConfig(layer_decay=0.5))
    expected = {
        "output_bias_V": 1.0,
        "final_norm.weight": 1.0,
        "blocks.2.attention.query.weight": 0.5,
        "blocks.1.attention.query.weight": 0.25,
        "blocks.0.attention_norm.bias": 0.125,
        "embedding.weight": 0.0625,
        "query_start_D": 0.0625,
    }
    assert {name: reported[name][0] for name in expected} == expected


def test_a_group_gets_its_share_of_the_rate() -> None:
    optimizer = adamw(small_model(), OptimizerConfig(layer_decay=0.5), fused=False)
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}
    set_learning_rate(optimizer.param_groups, 0.8)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
        [0.8 * group["rate_share"] for group in optimizer.param_groups]
    )
    assert min(group["lr"] for group in optimizer.param_groups) == pytest.approx(0.05)
    assert isinstance(optimizer, torch.optim.AdamW)
