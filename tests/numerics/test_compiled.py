"""torch.compile computes the same."""

import pytest
import torch
from torch.nn import functional

from tests.numerics.two_stream_cases import filled_memory, predict, random_case, small_model

FP64_TOLERANCE = 1e-10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("choice", ["xlnet", "modern"])
def test_compiled_logits_and_gradients_equal_eager_ones(choice: str) -> None:
    case, gradients = random_case(1), []
    for compiled in (False, True):
        model = small_model(choice, num_layers=2)
        if compiled:
            model.compile(fullgraph=True)
        logits = predict(model, case, filled_memory(model, 3, 1)).logits_BPV
        functional.cross_entropy(logits.flatten(0, 1), torch.arange(8) % 13).backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert (gradient - gradients[1][name]).abs().max() < FP64_TOLERANCE, name
