"""The operators `torch.ops.permcode_gpu` are what PyTorch takes them for: schema, gradients, shapes, compilation.

Interpreted on the CPU, on small problems. Dropout draws from PyTorch's generator, so its operator has no fixed result.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from pretrain.model.fused.gpu import attend, output_loss
from pretrain.model.fused.gpu.attend import attend_on_gpu
from tests.unit.pretrain.model.fused_cases import Problem, Shape, make_problem, solved
from tests.unit.pretrain.model.gpu.interpreted import tiles_of

OPERATORS = torch.ops.permcode_gpu
assert attend
assert output_loss
ALL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
WITHOUT_GRADIENTS = ("test_schema", "test_faketensor")


class Recorder:
    """Stands for an operator, and keeps its arguments."""

    def __init__(self, operator: Any) -> None:
        self.operator, self.calls = operator, []  # type: ignore[var-annotated]

    def __call__(self, *inputs: Any) -> Any:
        self.calls.append(inputs)
        return self.operator(*inputs)


def arguments_of(name: str, problem: Problem) -> tuple[Any, ...]:
    """What the model gives an operator for a problem."""
    problem.mask.derived.clear()
    recorder = Recorder(getattr(OPERATORS, name))
    with pytest.MonkeyPatch.context() as patch, tiles_of(16, 16):
        patch.setattr(OPERATORS, name, recorder)
        solved(problem, torch.float32, attend_on_gpu)
    arguments: tuple[Any, ...] = recorder.calls[0]
    return tuple(
        one.detach().clone().requires_grad_(one.requires_grad) if isinstance(one, Tensor) else one
        for one in arguments
    )


@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 1, 18, 9, 5, head_dim=16, gap=3),
        Shape(1, 2, 17, 0, 4, head_dim=8, distances=False, documents=False, biases=False),
    ],
    ids=["everything", "nothing"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_attention_and_its_gradients_are_sound_operators(shape: Shape) -> None:
    problem = make_problem(shape)
    attends, tables, backward = (
        arguments_of(name, problem) for name in ("attend", "mask_tables", "attend_backward")
    )
    with tiles_of(16, 16):
        torch.library.opcheck(OPERATORS.attend.default, attends, test_utils=ALL)
        torch.library.opcheck(OPERATORS.mask_tables.default, tables, test_utils=WITHOUT_GRADIENTS)
        torch.library.opcheck(OPERATORS.attend_backward.default, backward, test_utils=WITHOUT_GRADIENTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_loss_is_a_sound_operator(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    rows_XD, weight_VD, bias_V = (
        torch.randn(*size, generator=draw).to(dtype).requires_grad_() for size in ((12, 16), (37, 16), (37,))
    )
    wanted_X = torch.randint(37, (12,), generator=draw)
    inputs = (rows_XD, weight_VD, bias_V, wanted_X)
    torch.library.opcheck(OPERATORS.output_loss.default, inputs, test_utils=ALL)


def test_an_operator_whose_shape_is_not_the_promised_one_is_found() -> None:
    @torch.library.custom_op("permcode_test::double", mutates_args=())
    def double(numbers: Tensor) -> Tensor:
        return numbers * 2

    @double.register_fake
    def _(numbers: Tensor) -> Tensor:
        return numbers.new_empty(len(numbers) + 1)

    with pytest.raises(Exception, match="[Ss]hapes"):
        torch.library.opcheck(double, (torch.ones(3),), test_utils="test_faketensor")
