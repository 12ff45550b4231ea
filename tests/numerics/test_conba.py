"""Both forms of the ConbaLayer against loops over their equations, in float64; and what their recurrences promise.

Shapes: B lanes, T places of the sequence, E width, D width inside, N channels of the state.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from finetune.layers.conba import ConbaBlock, ConbaConfig, ConbaLayer, DiagonalStates, SeedStates
from finetune.layers.scan import linear_scan, matrix_scan

TOLERANCE = 1e-10


def loop(decay_BTN: Tensor, input_BTN: Tensor) -> Tensor:
    state_BN = torch.zeros_like(input_BTN[:, 0])
    states = []
    for t in range(input_BTN.shape[1]):
        state_BN = decay_BTN[:, t] * state_BN + input_BTN[:, t]
        states.append(state_BN)
    return torch.stack(states, dim=1)


def transition_by_equations(states: SeedStates) -> Tensor:
    """A by another way than the layer's: max_radius W L'^-1 with L L' = I + W' W."""
    lower = torch.linalg.cholesky(
        torch.eye(len(states.W_DD), dtype=torch.float64) + states.W_DD.T @ states.W_DD
    )
    return states.max_radius * states.W_DD @ torch.linalg.inv(lower.T)


def final_output(layer: ConbaLayer, x: Tensor, state: Tensor) -> Tensor:
    """The text's last three equations at one place."""
    output = x
    if layer.selective_fc is not None:
        z = layer.selective_fc.weight @ x + layer.selective_fc.bias
        output = z / (1 + torch.exp(-z)) * x
    if layer.control_weight_D is not None:
        output = output * layer.control_weight_D
    if layer.states is None:
        return output
    return output + (state * layer.feedback_weight_D if layer.feedback_weight_D is not None else state)


def seed_by_loop(block: ConbaBlock, x_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
    """The text's equations as they stand, from a state of zeros, one lane and one place after the other."""
    layer = block.layer
    outputs = x_BTE.new_zeros(*x_BTE.shape[:2], layer.config.dim)
    for lane in range(len(x_BTE)):
        state = torch.zeros(layer.config.dim, dtype=torch.float64)
        for t in is_text_BT[lane].nonzero()[:, 0].tolist():
            x = block.inward(x_BTE[lane, t])
            if isinstance(layer.states, SeedStates):
                before = (
                    transition_by_equations(layer.states) @ state if layer.config.recurrence else 0.0 * state
                )
                state = before + layer.states.B.weight @ x
            outputs[lane, t] = final_output(layer, x, state)
    return outputs


def diagonal_by_loop(block: ConbaBlock, x_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
    """The form's equations as they stand, with a full matrix per step."""
    layer, outputs = block.layer, torch.zeros_like(x_BTE)
    for lane in range(len(x_BTE)):
        carried: Tensor | None = None
        for t in is_text_BT[lane].nonzero()[:, 0].tolist():
            x, state = block.inward(x_BTE[lane, t]), torch.zeros(())
            if isinstance(layer.states, DiagonalStates):
                states = layer.states
                eigenvalue = states.eigenvalues()
                enter = torch.complex(*states.enter.weight.chunk(2))
                scale = torch.diag((1 - eigenvalue.abs() ** 2).sqrt().to(eigenvalue.dtype))
                entering = scale @ enter @ x.to(enter.dtype)
                turned = torch.diag(eigenvalue if layer.config.recurrence else 0 * eigenvalue)
                carried = entering if carried is None else turned @ carried + entering
                state = (torch.complex(*states.leave.weight.chunk(2, dim=1)) @ carried).real
            assert block.outward is not None
            output = block.outward(final_output(layer, x, state))
            outputs[lane, t] = output + x_BTE[lane, t] if layer.config.residual else output
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


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 64, 101])
def test_matrix_scan_and_its_gradients_are_those_of_a_loop(length: int) -> None:
    torch.manual_seed(length)
    matrix, inputs = (
        torch.randn(3, 3, dtype=torch.float64) / 3,
        torch.randn(2, length, 3, dtype=torch.float64),
    )
    given_gradient = torch.randn_like(inputs)

    def steps(matrix_DD: Tensor, input_BTD: Tensor) -> Tensor:
        state, states = torch.zeros_like(input_BTD[:, 0]), []
        for input_BD in input_BTD.unbind(dim=1):
            state = state @ matrix_DD.T + input_BD
            states.append(state)
        return torch.stack(states, dim=1)

    results = []
    for scan in (matrix_scan, steps):
        leaves = [matrix.clone().requires_grad_(), inputs.clone().requires_grad_()]
        states = scan(*leaves)
        results.append((states, *torch.autograd.grad(states, leaves, given_gradient, allow_unused=True)))
    for ours, wanted in zip(*results, strict=True):
        wanted = torch.zeros_like(matrix) if wanted is None else wanted
        ours = torch.zeros_like(matrix) if ours is None else ours
        torch.testing.assert_close(ours, wanted, rtol=TOLERANCE, atol=TOLERANCE)


SWITCHES: list[dict[str, object]] = [
    {},
    {"state": False},
    {"recurrence": False},
    {"control": False},
    {"feedback": False},
    {"gate": False},
    {"dim": 6},
]
CASES = [
    *({"form": "seed"} | switch for switch in SWITCHES),
    *({"form": "diagonal"} | switch for switch in [*SWITCHES, {"residual": False}, {"state_dim": 3}]),
]
LOOPS = {"seed": seed_by_loop, "diagonal": diagonal_by_loop}
forms = pytest.mark.parametrize("form", LOOPS)


def small_block(**changed: object) -> ConbaBlock:
    torch.manual_seed(1)
    block = ConbaBlock(ConbaConfig.model_validate({"dim": 5} | changed), 6).double()
    for name, parameter in block.named_parameters():  # no ones or zeros that could hide a missing term
        if not name.endswith(("radius_logit_N", "angle_N")):
            torch.nn.init.normal_(parameter, std=0.6)
    return block


@pytest.mark.parametrize("changed", CASES, ids=str)
def test_a_form_and_its_gradients_are_those_of_its_equations(changed: dict[str, object]) -> None:
    block = small_block(**changed)
    x_BTE = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True)
    is_text_BT = torch.ones(3, 9, dtype=torch.bool)
    is_text_BT[1, 4:6] = False
    is_text_BT[2] = torch.tensor([0, 1, 1, 0, 1, 0, 1, 0, 0], dtype=torch.bool)
    ours = block(x_BTE, is_text_BT)
    wanted = LOOPS[block.layer.config.form](block, x_BTE, is_text_BT)
    torch.testing.assert_close(ours[is_text_BT], wanted[is_text_BT], rtol=TOLERANCE, atol=TOLERANCE)
    given_gradient = torch.randn_like(ours) * is_text_BT[:, :, None]
    leaves = [x_BTE, *block.parameters()]
    # Without a recurrence nothing of A is used but, in form diagonal, the scale.
    unused = not block.layer.config.recurrence
    for one, other in zip(
        torch.autograd.grad(ours, leaves, given_gradient, allow_unused=unused),
        torch.autograd.grad(wanted, leaves, given_gradient, allow_unused=unused),
        strict=True,
    ):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_seeds_form_has_the_texts_parameters_and_no_others() -> None:
    block = ConbaBlock(ConbaConfig(form="seed", dim=6), 6)
    assert {name: tuple(one.shape) for name, one in block.named_parameters()} == {
        "layer.states.W_DD": (6, 6),
        "layer.states.B.weight": (6, 6),
        "layer.selective_fc.weight": (6, 6),
        "layer.selective_fc.bias": (6,),
        "layer.control_weight_D": (6,),
        "layer.feedback_weight_D": (6,),
    }
    with pytest.raises(ValidationError, match="state_dim is of form diagonal"):
        ConbaConfig(form="seed", state_dim=3)


@pytest.mark.parametrize("changed", SWITCHES, ids=str)
def test_the_seeds_form_has_no_parameter_that_nothing_uses(changed: dict[str, object]) -> None:
    block = small_block(form="seed", **changed)
    block(torch.randn(2, 5, 6, dtype=torch.float64), torch.ones(2, 5, dtype=torch.bool)).sum().backward()
    assert [name for name, one in block.named_parameters() if one.grad is None] == []


def test_without_recurrence_the_rest_begins_the_same() -> None:
    torch.manual_seed(1)
    whole = ConbaBlock(ConbaConfig(form="seed", dim=5), 6).state_dict()
    torch.manual_seed(1)
    without = ConbaBlock(ConbaConfig(form="seed", dim=5, recurrence=False), 6).state_dict()
    assert whole.keys() - without.keys() == {"layer.states.W_DD"}
    assert all(torch.equal(one, whole[name]) for name, one in without.items())


@forms
def test_ablations_differ_from_the_layer_and_from_each_other(form: str) -> None:
    x_BTE, is_text_BT = torch.randn(1, 9, 6, dtype=torch.float64), torch.ones(1, 9, dtype=torch.bool)
    whole = small_block(form=form)
    outputs = []
    for changed in SWITCHES[:6]:
        block = small_block(form=form, **changed)
        block.load_state_dict(whole.state_dict(), strict=False)
        outputs.append(block(x_BTE, is_text_BT))
    for first, one in enumerate(outputs):
        assert all((one - other).abs().max() > 1e-3 for other in outputs[first + 1 :])


def with_norm(matrix_DD: Tensor, norm: float) -> Tensor:
    return matrix_DD * (norm / float(torch.linalg.matrix_norm(matrix_DD, 2)))


@pytest.mark.parametrize(
    "matrix_DD",
    [
        with_norm(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double(), 0.95),
        with_norm(torch.triu(torch.ones(6, 6, dtype=torch.float64), 1), 0.5),  # cannot be diagonalised
        torch.diag(torch.tensor([0.9, -0.8, 0.3, 0.0, 1e-9, 0.998], dtype=torch.float64)),  # real eigenvalues
        torch.zeros(6, 6, dtype=torch.float64),
    ],
    ids=["any", "nilpotent", "diagonal", "zero"],
)
def test_every_matrix_of_smaller_norm_can_be_a(matrix_DD: Tensor) -> None:
    states = SeedStates(6, max_radius=0.999).double()
    states.set_transition(matrix_DD)
    torch.testing.assert_close(states.transition(), matrix_DD, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(transition_by_equations(states), matrix_DD, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", [0.9, 0.95, 3.0])
def test_no_matrix_of_the_bounds_norm_can_be_a(norm: float) -> None:
    matrix_DD = with_norm(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).double(), norm)
    with pytest.raises(ValueError, match="the norm of A is not below max_radius=0.9"):
        SeedStates(4, max_radius=0.9).set_transition(matrix_DD)


@settings(max_examples=40, deadline=None)
@given(dim=st.integers(1, 9), power=st.integers(-30, 30), is_ones=st.booleans(), seed=st.integers(0, 9))
def test_the_norm_of_a_stays_below_its_bound_whatever_was_learnt(
    dim: int, power: int, is_ones: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    states = SeedStates(dim, max_radius=0.999)
    assert torch.linalg.matrix_norm(states.transition(), 2) < 0.99  # as it begins
    with torch.no_grad():
        states.W_DD.copy_((torch.ones if is_ones else torch.randn)(dim, dim) * 10.0**power)
    assert torch.linalg.matrix_norm(states.transition().double(), 2) < 0.99901
    (gradient,) = torch.autograd.grad(states.transition().sum(), states.W_DD)
    assert gradient.isfinite().all()


def test_only_the_seeds_states_follow_from_the_state_before_and_the_input() -> None:
    torch.manual_seed(0)
    x_BTD, is_text_BT = torch.randn(1, 400, 4, dtype=torch.float64), torch.ones(1, 400, dtype=torch.bool)
    unexplained = {}
    for states in (SeedStates(4, 0.999).double(), DiagonalStates(4, 4, 0.999).double()):
        state_TD = states(x_BTD, is_text_BT)[0].detach()
        known = torch.cat([state_TD[:-1], x_BTD[0, 1:]], dim=1)
        left = state_TD[1:] - known @ torch.linalg.lstsq(known, state_TD[1:]).solution
        unexplained[type(states)] = float(left.norm() / state_TD[1:].norm())
    assert unexplained[SeedStates] < 1e-12
    assert unexplained[DiagonalStates] > 0.01


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
    space = DiagonalStates(1, 1, max_radius)
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


def test_the_seeds_state_stays_bounded_on_long_inputs() -> None:
    max_radius, length = 0.999, 100_000
    states = SeedStates(2, max_radius)
    states.set_transition(0.9989 * torch.eye(2))
    with torch.no_grad():
        states.B.weight.copy_(torch.eye(2))
    x_BTD = torch.full((1, length, 2), 0.5**0.5)  # of length 1, always in one direction
    state_BTD = states(x_BTD, torch.ones(1, length, dtype=torch.bool))
    assert 0.99 / (1 - 0.9989) < state_BTD[0, -1].norm() <= 1.01 / (1.0 - max_radius)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), form=st.sampled_from(sorted(LOOPS)))
def test_padding_anywhere_changes_no_other_place(data: st.DataObject, form: str) -> None:
    layer = small_block(form=form)
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


@forms
def test_recurrence_gives_a_its_gradient_and_the_past_its_say(form: str) -> None:
    """In the code that goes with the text neither holds: the state before is always missing."""
    for recurrence in (True, False):
        block = small_block(form=form, recurrence=recurrence)
        x_BTE = torch.randn(1, 8, 6, dtype=torch.float64, requires_grad=True)
        block(x_BTE, torch.ones(1, 8, dtype=torch.bool))[:, -1].square().sum().backward()
        assert x_BTE.grad is not None
        assert (x_BTE.grad[0, :-1].abs().max().item() > 1e-6) is recurrence
        states = block.layer.states
        assert states is not None
        past = getattr(states, "W_DD" if form == "seed" else "angle_N", None)
        has_gradient = past is not None and past.grad is not None and past.grad.abs().min().item() > 0
        assert has_gradient is recurrence


def test_a_new_layer_of_the_diagonal_form_gives_its_input_and_can_leave_it() -> None:
    torch.manual_seed(0)
    block = ConbaBlock(ConbaConfig(form="diagonal", dim=4), 6)
    x_BTE, is_text_BT = torch.randn(2, 5, 6), torch.ones(2, 5, dtype=torch.bool)
    assert torch.equal(block(x_BTE, is_text_BT), x_BTE)
    block(x_BTE, is_text_BT).square().sum().backward()
    assert block.outward is not None
    gradient = block.outward[1].weight.grad
    assert isinstance(gradient, Tensor)
    assert gradient.abs().max() > 0


@forms
def test_in_bfloat16_states_are_carried_in_float32(form: str) -> None:
    torch.manual_seed(0)
    block = ConbaBlock(ConbaConfig.model_validate({"form": form, "dim": 16, "residual": False}), 16)
    x_BTE, is_text_BT = torch.randn(2, 300, 16), torch.ones(2, 300, dtype=torch.bool)
    exact = block(x_BTE, is_text_BT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = block(x_BTE, is_text_BT)
    narrow = block.to(torch.bfloat16)(x_BTE, is_text_BT)
    for found in (mixed, narrow):
        assert found.dtype == torch.float32
        assert functional.cosine_similarity(exact.flatten(), found.flatten(), dim=0) > 0.999
