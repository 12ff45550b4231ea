"""Products of bfloat16 by way of float32: exact but for one rounding, in every form that PyTorch calls them in."""

import subprocess
import sys

# A process of its own: what is registered stays.
CHECK = """
import warnings
warnings.simplefilter("error")
import torch
from pretrain.model.fused.operators import load_operators
assert load_operators() is None
torch.ops.permcode_attention.multiply_in_float32()
random = torch.Generator().manual_seed(0)

def numbers(*shape):
    return torch.randn(shape, generator=random).bfloat16()

def check(found, wanted):
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted.bfloat16(), rtol=0.0, atol=0.0)

left, right, row, rows = numbers(7, 40), numbers(40, 5), numbers(5), numbers(7, 5)
wide = left.float() @ right.float()
check(left @ right, wide)
check(right.T @ left.T, wide.T)
check(torch.mm(left, right, out=torch.empty(0, dtype=torch.bfloat16)), wide)
check(torch.addmm(row, left, right, beta=0.5, alpha=2.0), 0.5 * row.float() + 2.0 * wide)
check(torch.nn.functional.linear(left, right.T, row), torch.addmm(row.float(), left.float(), right.float()))
check(rows.clone().addmm_(left, right), torch.addmm(rows.float(), left.float(), right.float()))
out = torch.empty(7, 5, dtype=torch.bfloat16)
check(torch.addmm(rows, left, right, out=out), torch.addmm(rows.float(), left.float(), right.float()))
lefts, rights, sums = numbers(3, 7, 40), numbers(3, 40, 5), numbers(3, 7, 5)
wides = torch.bmm(lefts.float(), rights.float())
check(torch.bmm(lefts, rights), wides)
check(torch.bmm(lefts, rights, out=torch.empty(3, 7, 5, dtype=torch.bfloat16)), wides)
check(torch.baddbmm(sums, lefts, rights), torch.baddbmm(sums.float(), lefts.float(), rights.float()))
check(torch.einsum("nij,njk->nik", lefts, rights), wides)
vector = numbers(40)
check(left @ vector, left.float() @ vector.float())
check(torch.addmv(numbers(7) * 0, left, vector), left.float() @ vector.float())
for shape in ((0, 40), (7, 0)):
    assert (numbers(*shape) @ numbers(shape[1], 5)).shape == (shape[0], 5)
for wrong in (lambda: left @ left, lambda: left @ right.float(), lambda: torch.bmm(lefts, rights.double())):
    try:
        wrong()
    except RuntimeError:
        continue
    raise AssertionError("products that do not fit each other are refused as ever")
check((left.float() @ right.float()).bfloat16(), wide)
weight = right.T.contiguous().requires_grad_()
torch.nn.functional.linear(left, weight).backward(rows)
check(weight.grad, rows.float().T @ left.float())
"""


def test_products_are_those_of_float32_rounded_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
