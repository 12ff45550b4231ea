"""ConbaLayer against loops over time, in float64; and what its recurrence promises.

Shapes: B lanes, T places of the sequence, E width, D width inside, N channels of the state.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from finetune.layers.conba import ConbaConfig, ConbaLayer, StateSpace
from finetune.layers.scan import linear_scan

TOLERANCE = 1e-10


def loop(decay_BTN: Tensor, input_BTN: Tensor) -> Tensor:
    state_BN = torch.zeros_like(input_BTN[:, 0])
    states = []
    for t in range(input_BTN.shape[1]):
        state_BN = decay_BTN[:, t] * state_BN + input_BTN[:, t]
        states.append(state_BN)
    return torch.stack(states, dim=1)


def conba_by_loop(layer: ConbaLayer, x_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
    """The equations as they stand, one lane and one place after the other, with a full matrix per step."""
    config, outputs = layer.config, torch.zeros_like(x_BTE)
    for lane in range(x_BTE.shape[0]):
        state = None
        for t in range(x_BTE.shape[1]):
            if not is_text_BT[lane, t]:
                continue
            x = layer.inward(x_BTE[lane, t])
            mixed = x
            if layer.selective_fc is not None:
                z = layer.selective_fc(x)
                mixed = z * torch.sigmoid(z) * x
            if layer.control_weight_D is not None:
                mixed = mixed * layer.control_weight_D
            if layer.space is not None:
                space = layer.space
                eigenvalue = space.eigenvalues()
                real, imaginary = space.enter.weight.chunk(2)
                b_matrix = torch.diag(
                    (1 - eigenvalue.abs() ** 2).sqrt().to(eigenvalue.dtype)
                ) @ torch.complex(real, imaginary)
                a_matrix = torch.diag(eigenvalue if config.recurrence else 0 * eigenvalue)
                entering = b_matrix @ x.to(b_matrix.dtype)
                state = entering if state is None else a_matrix @ state + entering
                v_matrix = torch.complex(*space.leave.weight.chunk(2, dim=1))
                read = (v_matrix @ state).real
                mixed = mixed + (read * layer.feedback_weight_D if config.feedback else read)
            output = layer.fc2(layer.C(mixed))
            outputs[lane, t] = output + x_BTE[lane, t] if config.residual else output
    return outputs


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 64, 101])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_scan_and_its_gradients_are_those_of_a_loop(length: int, dtype: torch.dtype) -> None:
    torch.manual_seed(length)
    decay, inputs, given_gradient = (torch.randn(2, length, 3, dtype=dtype) for _ in range(3))
    decay = decay / 2
    results = []
    for scan in (linear_scan, loop):
        leaves = [decay.clone().requires_grad_(), inputs.clone().requires_grad_()]
        states = scan(*leaves)
        results.append((states, *torch.autograd.grad(states, leaves, given_gradient)))
    for ours, wanted in zip(*results, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_scan_of_an_empty_sequence_is_empty_and_shapes_must_agree() -> None:
    assert linear_scan(torch.zeros(2, 0, 3), torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    with pytest.raises(ValueError, match="decay has shape"):
        linear_scan(torch.zeros(3), torch.zeros(2, 4, 3))


ABLATIONS = [
    {},
    {"state": False},
    {"recurrence": False},
    {"control": False},
    {"feedback": False},
    {"gate": False},
    {"residual": False},
    {"state_dim": 3},
    {"dim": 6},
]


def small_layer(**changed: object) -> ConbaLayer:
    torch.manual_seed(1)
    layer = ConbaLayer(ConbaConfig.model_validate({"dim": 5} | changed), 6).double()
    for name, parameter in layer.named_parameters():  # no ones or zeros that could hide a missing term
        if not name.endswith(("radius_logit_N", "angle_N")):
            torch.nn.init.normal_(parameter, std=0.6)
    return layer


@pytest.mark.parametrize("changed", ABLATIONS, ids=str)
def test_layer_and_its_gradients_are_those_of_the_equations(changed: dict[str, object]) -> None:
    layer = small_layer(**changed)
    x_BTE = torch.randn(2, 9, 6, dtype=torch.float64, requires_grad=True)
    is_text_BT = torch.ones(2, 9, dtype=torch.bool)
    is_text_BT[1, 4:6] = False
    given_gradient = torch.randn(2, 9, 6, dtype=torch.float64) * is_text_BT[:, :, None]
    leaves = [x_BTE, *layer.parameters()]
    ours, wanted = layer(x_BTE, is_text_BT), conba_by_loop(layer, x_BTE, is_text_BT)
    torch.testing.assert_close(ours[is_text_BT], wanted[is_text_BT], rtol=TOLERANCE, atol=TOLERANCE)
    unused = (
        not layer.config.recurrence
    )  # then neither A's gradient nor the loop's is there but through the scale
    for one, other in zip(
        torch.autograd.grad(ours, leaves, given_gradient, allow_unused=unused),
        torch.autograd.grad(wanted, leaves, given_gradient, allow_unused=unused),
        strict=True,
    ):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def test_ablations_differ_from_the_layer_and_from_each_other() -> None:
    x_BTE, is_text_BT = torch.randn(1, 9, 6, dtype=torch.float64), torch.ones(1, 9, dtype=torch.bool)
    whole = small_layer()
    outputs = []
    for changed in ABLATIONS[:7]:
        layer = small_layer(**changed)
        layer.load_state_dict(whole.state_dict(), strict=False)
        outputs.append(layer(x_BTE, is_text_BT))
    for first, one in enumerate(outputs):
        assert all((one - other).abs().max() > 1e-3 for other in outputs[first + 1 :])


def test_any_diagonalisable_matrix_is_covered() -> None:
    torch.manual_seed(0)
    a_matrix = torch.randn(5, 5, dtype=torch.float64)
    a_matrix *= 0.9 / torch.linalg.eigvals(a_matrix).abs().max()
    b_matrix = torch.randn(5, 5, dtype=torch.float64)
    eigenvalue, v_matrix = torch.linalg.eig(a_matrix)
    enter = torch.linalg.inv(v_matrix) @ b_matrix.to(v_matrix.dtype)
    enter = enter / (1 - eigenvalue.abs() ** 2).sqrt()[:, None]
    space = StateSpace(5, 5, max_radius=0.999).double()
    with torch.no_grad():
        space.radius_logit_N.copy_(torch.logit(eigenvalue.abs() / 0.999))
        space.angle_N.copy_(eigenvalue.angle())
        space.enter.weight.copy_(torch.cat([enter.real, enter.imag]))
        space.leave.weight.copy_(torch.cat([v_matrix.real, v_matrix.imag], dim=1))
    x_TD = torch.randn(20, 5, dtype=torch.float64)
    state, wanted = torch.zeros(5, dtype=torch.float64), []
    for x_D in x_TD:
        state = a_matrix @ state + b_matrix @ x_D
        wanted.append(state)
    ours = space(x_TD[None], torch.ones(1, 20, dtype=torch.bool))[0]
    torch.testing.assert_close(ours, torch.stack(wanted), rtol=1e-9, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(
    radius_logit=st.floats(-1e30, 1e30, allow_subnormal=False),
    angle=st.floats(-1e30, 1e30, allow_subnormal=False),
    wave=st.sampled_from(["constant", "alternating", "random"]),
)
def test_state_stays_bounded_on_long_inputs_whatever_the_parameters(
    radius_logit: float, angle: float, wave: str
) -> None:
    max_radius, length = 0.999, 100_000
    space = StateSpace(1, 1, max_radius)
    with torch.no_grad():
        space.radius_logit_N.fill_(radius_logit)
        space.angle_N.fill_(angle)
        space.enter.weight.copy_(torch.tensor([[1.0], [0.0]]))
        space.leave.weight.copy_(torch.tensor([[1.0, 0.0]]))
    x_BTD = torch.ones(1, length, 1)
    if wave == "alternating":
        x_BTD[:, ::2] = -1.0
    elif wave == "random":
        x_BTD = torch.rand(1, length, 1) * 2 - 1
    assert (space.eigenvalues().abs() < 1.0).all()
    state_BTD = space(x_BTD, torch.ones(1, length, dtype=torch.bool))
    assert state_BTD.isfinite().all()
    # Rounding may add up over as many places as the memory is long.
    assert state_BTD.abs().max() <= 1.01 / (1.0 - max_radius)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_padding_anywhere_changes_no_other_place(data: st.DataObject) -> None:
    layer = small_layer()
    length = data.draw(st.integers(1, 12))
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=length + 1, max_size=length + 1))
    x_TE = torch.randn(length, 6, dtype=torch.float64)
    rows, is_text = [], []
    for t in range(length + 1):
        rows += [torch.full((6,), 1e3, dtype=torch.float64)] * gaps[t]
        is_text += [False] * gaps[t]
        if t < length:
            rows.append(x_TE[t])
            is_text.append(True)
    is_text_BT = torch.tensor([is_text])
    padded = layer(torch.stack(rows)[None], is_text_BT)[is_text_BT]
    plain = layer(x_TE[None], torch.ones(1, length, dtype=torch.bool))[0]
    torch.testing.assert_close(padded, plain, rtol=TOLERANCE, atol=TOLERANCE)


def test_recurrence_gives_a_its_gradient_and_the_past_its_say() -> None:
    """In the source's code neither holds: the state before was always missing."""
    for recurrence in (True, False):
        layer = small_layer(recurrence=recurrence)
        assert layer.space is not None
        x_BTE = torch.randn(1, 8, 6, dtype=torch.float64, requires_grad=True)
        layer(x_BTE, torch.ones(1, 8, dtype=torch.bool))[:, -1].square().sum().backward()
        assert x_BTE.grad is not None
        assert (x_BTE.grad[0, :-1].abs().max().item() > 1e-6) is recurrence
        angle_gradient = layer.space.angle_N.grad
        has_gradient = angle_gradient is not None and angle_gradient.abs().min().item() > 0
        assert has_gradient is recurrence


def test_a_new_layer_gives_its_input_and_can_leave_it() -> None:
    torch.manual_seed(0)
    layer = ConbaLayer(ConbaConfig(dim=4), 6)
    x_BTE, is_text_BT = torch.randn(2, 5, 6), torch.ones(2, 5, dtype=torch.bool)
    assert torch.equal(layer(x_BTE, is_text_BT), x_BTE)
    layer(x_BTE, is_text_BT).square().sum().backward()
    assert layer.fc2.weight.grad is not None
    assert layer.fc2.weight.grad.abs().max() > 0


def test_in_bfloat16_states_are_carried_in_float32() -> None:
    torch.manual_seed(0)
    layer = ConbaLayer(ConbaConfig(dim=16, residual=False), 16)
    x_BTE, is_text_BT = torch.randn(2, 300, 16), torch.ones(2, 300, dtype=torch.bool)
    exact = layer(x_BTE, is_text_BT)
    narrow = layer.to(torch.bfloat16)(x_BTE, is_text_BT)
    assert narrow.dtype == torch.float32
    assert functional.cosine_similarity(exact.flatten(), narrow.flatten(), dim=0) > 0.999
