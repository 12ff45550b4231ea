"""What a token costs, by either way of computing it."""

import pytest
import torch
from torch.nn import functional

from pretrain.evaluation import scoring as scoring_module
from pretrain.evaluation.scoring import token_nats


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("fused", [True, False])
def test_nats_are_those_of_the_exact_softmax(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, fused: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits_BPV = (8 * torch.randn(2, 5, 37, generator=generator)).to(dtype)
    wanted_BP = torch.randint(37, (2, 5), generator=generator)
    if not fused:
        monkeypatch.setattr(scoring_module, "cross_entropy_fusable", lambda _: False)
        monkeypatch.setattr(scoring_module, "MAX_FLOAT32_LOGITS", 100)  # several parts, the last one short
    exact = functional.cross_entropy(logits_BPV.double().flatten(0, 1), wanted_BP.flatten(), reduction="none")
    found = token_nats(logits_BPV, wanted_BP)
    assert found.shape == (2, 5)
    assert torch.allclose(found.flatten().double(), exact, rtol=1e-5, atol=1e-5)
