"""The encoder's gated unit against a loop over the equations of Bahdanau et al. 2015, appendix A.1 and A.2.1."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from finetune.layers.aligned_decoder import initialise
from finetune.layers.recurrent_encoder import BidirectionalEncoder, GatedLayer


def gated_loop(layer: GatedLayer, direction: int, rows: list[Tensor]) -> list[Tensor]:
    """h_1 ... h_n of one direction, of what it reads in its own order."""
    size = layer.state_dim
    w, w_z, w_r = torch.split(layer.from_row.weight[direction * 3 * size :][: 3 * size], size)
    b, b_z, b_r = torch.split(layer.from_row.bias[direction * 3 * size :][: 3 * size], size)
    u_z, u_r = torch.split(layer.from_state.weight[direction * 2 * size :][: 2 * size], size)
    u = layer.from_reset_state.weight[direction * size :][:size]
    h = torch.zeros(size, dtype=w.dtype)
    found = []
    for x in rows:
        z = 1 / (1 + torch.exp(-(w_z @ x + u_z @ h + b_z)))
        r = 1 / (1 + torch.exp(-(w_r @ x + u_r @ h + b_r)))
        proposal = torch.tanh(w @ x + u @ (r * h) + b)
        h = (1 - z) * h + z * proposal
        found.append(h)
    return found


def loop(encoder: BidirectionalEncoder, rows: list[Tensor]) -> list[Tensor]:
    """The annotations of one text without padding."""
    for layer in encoder.gated:
        assert isinstance(layer, GatedLayer)
        forward, backward = gated_loop(layer, 0, rows), gated_loop(layer, 1, rows[::-1])[::-1]
        rows = [torch.cat(both) for both in zip(forward, backward, strict=True)]
    return rows


def gru(input_dim: int, state_dim: int, num_layers: int) -> BidirectionalEncoder:
    """With no small numbers for an error to hide behind."""
    encoder = BidirectionalEncoder("gru", input_dim, state_dim, num_layers, 0.0).double()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    return encoder


@settings(max_examples=60, deadline=None)
@given(
    is_source=st.integers(1, 7).flatmap(
        lambda length: st.lists(
            st.lists(st.booleans(), min_size=length, max_size=length), min_size=1, max_size=4
        )
    ),
    state_dim=st.integers(1, 5),
    num_layers=st.integers(1, 3),
    seed=st.integers(0, 100),
)
def test_the_gated_encoder_is_the_papers_with_padding_anywhere(
    is_source: list[list[bool]], state_dim: int, num_layers: int, seed: int
) -> None:
    torch.manual_seed(seed)
    is_source_BS = torch.tensor(is_source)
    encoder = gru(3, state_dim, num_layers)
    rows_BSD = torch.randn(*is_source_BS.shape, 3, dtype=torch.float64, requires_grad=True)
    found_BSC = encoder(rows_BSD, is_source_BS)
    with torch.no_grad():
        assert torch.equal(encoder(rows_BSD, is_source_BS), found_BSC)
    weight_BSC = torch.randn_like(found_BSC)

    total = torch.zeros((), dtype=torch.float64)
    for lane, mask_S in enumerate(is_source_BS):
        places = mask_S.nonzero()[:, 0].tolist()
        annotations = loop(encoder, [rows_BSD[lane, place] for place in places])
        for place, annotation in zip(places, annotations, strict=True):
            torch.testing.assert_close(found_BSC[lane, place], annotation, rtol=1e-10, atol=1e-12)
            total = total + (annotation * weight_BSC[lane, place]).sum()
    assert not found_BSC[~is_source_BS].any()

    inputs = [rows_BSD, *encoder.parameters()]
    found = torch.autograd.grad((found_BSC * weight_BSC).sum(), inputs)
    if not is_source_BS.any():
        assert not any(gradient.any() for gradient in found)
        return
    expected = torch.autograd.grad(total, inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def mask_of(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


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


def test_matrices_from_state_to_state_begin_orthogonal_and_biases_at_zero() -> None:
    encoder = BidirectionalEncoder("gru", 6, 5, 2, 0.0)
    initialise(encoder)
    for layer in encoder.gated:
        assert isinstance(layer, GatedLayer)
        for weight in (layer.from_state.weight, layer.from_reset_state.weight):
            for matrix in torch.split(weight, 5):
                torch.testing.assert_close(matrix @ matrix.T, torch.eye(5))
        assert not layer.from_row.bias.any()


def test_dropout_lies_between_the_layers_alone() -> None:
    torch.manual_seed(0)
    rows_BSD, is_source_BS = torch.randn(2, 5, 4), mask_of([5, 3])
    for num_layers in (1, 2):
        encoder = BidirectionalEncoder("gru", 4, 3, num_layers, 0.5)
        read_BSC = encoder.eval()(rows_BSD, is_source_BS)
        assert torch.equal(encoder.train()(rows_BSD, is_source_BS), read_BSC) == (num_layers == 1)


def test_states_of_bfloat16_networks_are_kept_in_float32() -> None:
    torch.manual_seed(0)
    encoder = BidirectionalEncoder("gru", 16, 24, 1, 0.0).bfloat16()
    exact = BidirectionalEncoder("gru", 16, 24, 1, 0.0).double()
    exact.load_state_dict(encoder.state_dict())
    rows_BSD, is_source_BS = torch.randn(3, 60, 16).bfloat16(), mask_of([60, 60, 60])
    with torch.no_grad():
        exact_BSC = exact(rows_BSD.double(), is_source_BS)
        rounded_BSC = torch.stack([torch.stack(loop(encoder, list(rows_SD))) for rows_SD in rows_BSD])
        found_BSC = encoder(rows_BSD, is_source_BS)
    assert found_BSC.dtype == torch.bfloat16
    assert (found_BSC - exact_BSC).norm() < 0.75 * (rounded_BSC - exact_BSC).norm()
