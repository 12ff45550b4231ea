"""The encoder as it learns against PyTorch's networks over packed sequences, which it is when it only reads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from finetune.layers.recurrent_encoder import BidirectionalEncoder


def mask_of(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    state_dim=st.integers(1, 5),
    seed=st.integers(0, 100),
)
def test_a_learning_gru_is_pytorchs(lengths: list[int], state_dim: int, seed: int) -> None:
    torch.manual_seed(seed)
    encoder = BidirectionalEncoder("gru", 3, state_dim, 1, 0.0).double()
    rows_BSD = torch.randn(len(lengths), max(lengths), 3, dtype=torch.float64, requires_grad=True)
    is_source_BS = mask_of(lengths)
    with torch.no_grad():
        expected_BSC = encoder(rows_BSD, is_source_BS)
    found_BSC = encoder(rows_BSD, is_source_BS)
    torch.testing.assert_close(found_BSC, expected_BSC, rtol=1e-12, atol=1e-12)

    weights_BSC = torch.randn_like(found_BSC)
    inputs = [rows_BSD, *encoder.parameters()]
    found = torch.autograd.grad((found_BSC * weights_BSC).sum(), inputs)
    lanes = [encoder.network(rows_BSD[lane : lane + 1, :length])[0][0] for lane, length in enumerate(lengths)]
    total = sum((lane_SC * weights_BSC[b, : len(lane_SC)]).sum() for b, lane_SC in enumerate(lanes))
    assert isinstance(total, Tensor)
    for one, other in zip(found, torch.autograd.grad(total, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("kind", "num_layers"), [("gru", 1), ("gru", 2), ("lstm", 1)])
def test_what_stands_in_padding_changes_nothing(kind: str, num_layers: int) -> None:
    torch.manual_seed(0)
    encoder = BidirectionalEncoder(kind, 4, 3, num_layers, 0.0)
    is_source_BS = mask_of([5, 2])
    rows_BSD = torch.randn(2, 5, 4)
    other_BSD = torch.where(is_source_BS[..., None], rows_BSD, 100.0)
    found_BSC = encoder(rows_BSD, is_source_BS)
    assert torch.equal(found_BSC, encoder(other_BSD, is_source_BS))
    assert not found_BSC[~is_source_BS].any()


def test_bfloat16_is_as_near_as_pytorchs() -> None:
    torch.manual_seed(0)
    encoder = BidirectionalEncoder("gru", 16, 24, 1, 0.0).bfloat16()
    exact = BidirectionalEncoder("gru", 16, 24, 1, 0.0).double()
    exact.load_state_dict(encoder.state_dict())
    exact.requires_grad_(False)
    rows_BSD, is_source_BS = torch.randn(3, 60, 16).bfloat16(), mask_of([60, 50, 3])

    def error(found_BSC: Tensor) -> float:
        return float((found_BSC.detach().double() - exact(rows_BSD.double(), is_source_BS)).norm())

    with torch.no_grad():
        packed_BSC = encoder(rows_BSD, is_source_BS)
    assert error(encoder(rows_BSD, is_source_BS)) <= 1.1 * error(packed_BSC)
