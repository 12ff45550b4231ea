"""Every tensor of both models has its place in the other, and nothing is lost or added on the way."""

from typing import Any

import pytest
import torch
from torch import Tensor

from cluster.errors import UserError
from pretrain.hf.weights import EMBEDDING, HEAD_WEIGHT, from_xlnet, tells_documents_apart, to_xlnet
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from tests.unit.pretrain.hf.conftest import SMALL

VOCAB = 31


def weights(config: ModelConfig) -> dict[str, Tensor]:
    model = TwoStreamTransformer(config, VOCAB)
    return {name: torch.randn(parameter.shape) for name, parameter in model.named_parameters()}


def both(**change: Any) -> tuple[ModelConfig, dict[str, Tensor], dict[str, Tensor]]:
    config = SMALL.model_copy(update=change)
    ours = weights(config)
    return config, ours, to_xlnet(ours, config, VOCAB)


@pytest.mark.parametrize("change", [{}, {"segment_encodings": False}, {"tie_embeddings": False}])
def test_every_tensor_comes_back(change: dict[str, Any]) -> None:
    config, ours, theirs = both(**change)
    back = from_xlnet(theirs, config, VOCAB, "here")
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_heads_are_cut_as_xlnet_cuts_them() -> None:
    """einsum("ibh,hnd->ibnd", x, q) of XLNet is the linear layer's output cut into heads; o puts heads together."""
    config, ours, theirs = both()
    rows = torch.randn(4, config.model_dim)
    q = theirs["transformer.layer.0.rel_attn.q"]
    linear = rows @ ours["blocks.0.attention.query.weight"].T
    heads = linear.view(4, config.num_heads, config.head_dim)
    assert torch.allclose(torch.einsum("ih,hnd->ind", rows, q), heads, atol=1e-5)
    o = theirs["transformer.layer.0.rel_attn.o"]
    together = heads.flatten(1) @ ours["blocks.0.attention.output.weight"].T
    assert torch.allclose(torch.einsum("ind,hnd->ih", heads, o), together, atol=1e-4)


def test_a_model_without_segment_encodings_has_zeros_there() -> None:
    _, _, without = both(segment_encodings=False)
    assert not without["transformer.layer.1.rel_attn.seg_embed"].any()
    assert not tells_documents_apart(without)
    assert tells_documents_apart(both()[2])


def test_a_parameter_that_xlnet_has_no_place_for_is_not_dropped_silently() -> None:
    config, ours, _ = both()
    with pytest.raises(ValueError, match="no place in XLNet for"):
        to_xlnet(ours | {"blocks.0.new": torch.zeros(1)}, config, VOCAB)


def test_a_missing_tensor_is_named() -> None:
    config, _, theirs = both()
    del theirs["transformer.layer.1.ff.layer_2.bias"]
    with pytest.raises(UserError, match=r"here lacks transformer\.layer\.1\.ff\.layer_2\.bias"):
        from_xlnet(theirs, config, VOCAB, "here")


def test_a_config_of_a_billion_layers_is_answered_at_once() -> None:
    config, _, theirs = both()
    config = config.model_copy(update={"num_layers": 1_000_000_000})
    with pytest.raises(UserError, match=r"here lacks transformer\.layer\.2\."):
        from_xlnet(theirs, config, VOCAB, "here")


def test_an_unknown_tensor_is_named() -> None:
    config, _, theirs = both()
    with pytest.raises(
        UserError, match=r"1 tensors that XLNetLMHeadModel does not know, the first logits_proj"
    ):
        from_xlnet(theirs | {"logits_proj.weight": torch.zeros(2)}, config, VOCAB, "here")


def test_another_shape_is_named() -> None:
    config, _, theirs = both()
    theirs["lm_loss.bias"] = torch.zeros(VOCAB + 1)
    with pytest.raises(UserError, match=r"lm_loss\.bias has shape \(32,\), and config\.json says \(31,\)"):
        from_xlnet(theirs, config, VOCAB, "here")


def test_a_tied_head_may_be_stored_if_it_is_the_embedding() -> None:
    config, ours, theirs = both()
    back = from_xlnet(theirs | {HEAD_WEIGHT: theirs[EMBEDDING].clone()}, config, VOCAB, "here")
    assert back.keys() == ours.keys()
    with pytest.raises(UserError, match="differ although config.json ties them"):
        from_xlnet(theirs | {HEAD_WEIGHT: theirs[EMBEDDING] + 1}, config, VOCAB, "here")
