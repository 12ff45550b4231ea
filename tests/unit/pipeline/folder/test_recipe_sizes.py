"""Recipes named after sizes are of these sizes, and can be exported as XLNet."""

import pytest
import torch

from pipeline.folder.recipe import load_run_config
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.plan.parameters import count_parameters


def module_parameters(config: ModelConfig, vocab_size: int) -> int:
    with torch.device("meta"):
        model = TwoStreamTransformer(config, vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("recipe", "millions"),
    [("tiny", 5.0), ("small", 30.0), ("base", 116.8), ("large", 360.3), ("xl", 1410.0)],
)
def test_a_recipes_size_is_what_its_name_says(recipe: str, millions: float) -> None:
    run = load_run_config(recipe)
    vocab_size = run.prep.tokenizer.vocab_size
    counted = count_parameters(run.pretrain.model, vocab_size).total
    assert counted == module_parameters(run.pretrain.model, vocab_size)
    assert counted == pytest.approx(millions * 1e6, rel=0.03)


@pytest.mark.parametrize("recipe", ["tiny", "small", "base", "large"])
def test_a_recipe_for_a_size_has_xlnets_shape(recipe: str) -> None:
    model = load_run_config(recipe).pretrain.model
    assert model.num_heads * model.head_dim == model.model_dim
    assert (model.norm, model.activation, model.positions.kind) == ("post", "gelu", "transformer_xl")
    assert model.tie_embeddings
    assert model.norm_epsilon == 1e-12
