"""Label smoothing against its definition: cross entropy with a target that is spread out.

Shapes: X predictions, V vocabulary.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from finetune.modalities.writing import writing_loss

_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", _TOLERANCE)
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 7), st.integers(2, 40), st.sampled_from([0.0, 0.1, 0.5, 0.99]), st.integers(0, 2**31))
def test_is_cross_entropy_with_a_spread_target(
    dtype: torch.dtype, num_predictions: int, vocab_size: int, smoothing: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawn_XV = 3 * torch.randn(num_predictions, vocab_size, generator=generator, dtype=torch.float64)
    logits_XV = drawn_XV.to(dtype).requires_grad_()
    wanted_X = torch.randint(vocab_size, (num_predictions,), generator=generator)
    loss = writing_loss(logits_XV, wanted_X, smoothing)
    loss.backward()

    exact_XV = logits_XV.detach().double().requires_grad_()
    target_XV = functional.one_hot(wanted_X, vocab_size).double() * (1 - smoothing) + smoothing / vocab_size
    expected = -(target_XV * exact_XV.log_softmax(dim=-1)).sum(dim=-1).mean()
    expected.backward()
    tolerance = _TOLERANCE[dtype]
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(loss.double(), expected, rtol=min(tolerance, 1e-5), atol=min(tolerance, 1e-5))
    assert logits_XV.grad is not None
    # At the target two terms nearly cancel where smoothing is strong, and each is rounded.
    torch.testing.assert_close(logits_XV.grad.double(), exact_XV.grad, rtol=tolerance, atol=tolerance / 3)
