"""The model gives the same numbers on a GPU as on the CPU."""

import pytest
import torch

from pretrain.model.config import ModelConfig
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import left_to_right

FP32_TOLERANCE = 1e-4

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def test_loss_and_gradients_equal_the_cpu() -> None:
    losses, gradients = [], []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model = TwoStreamTransformer(
            ModelConfig(num_layers=2, dropout=0.0, memory_tokens=16), vocab_size=50
        ).to(device)
        tokens = (torch.arange(64) % 50).view(2, 32).to(device)
        places = left_to_right(torch.zeros_like(tokens))
        memory = model(tokens, places, places).memory
        loss = prediction_loss(model(tokens, places, places, memory).logits_BPV, tokens)
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([parameter.grad.flatten().cpu() for parameter in model.parameters()]))
    assert losses[1] == pytest.approx(losses[0], abs=FP32_TOLERANCE)
    assert (gradients[1] - gradients[0]).abs().max() < FP32_TOLERANCE
