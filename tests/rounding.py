"""How far a computed sum may be from the exact one, on any processor and in any order of its terms.

A sum of n terms is off by at most n u times the sum of the terms' absolute values, its *magnitude* (u is half the
distance from 1 to the next number; Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Rounding goes
up as often as down, so for large n 6 sqrt(n) takes the place of n (Higham and Mary, A New Approach to Probabilistic
Rounding Error Analysis, 2019; one sum in 10^7 is further off). A bound relative to the result itself would be missed by
every sum that cancels.
"""

import torch
from torch import Tensor

OTHER_ROUNDINGS = 16
"""Beside those of a long sum: of inputs and scales, and in functions like the exponential."""
_UNIT = 2.0**-24
"""Of float32."""
_DEVIATIONS = 6.0


def assert_rounded(
    found: Tensor, exact: Tensor, magnitude: Tensor, num_roundings: int, what: str = ""
) -> None:
    """Each number of `found`, a sum in float32, is as near to `exact` as that many roundings allow; NaN is not."""
    assert found.shape == exact.shape == magnitude.shape, what
    smallest = torch.finfo(torch.float32).tiny
    bound = min(num_roundings, _DEVIATIONS * num_roundings**0.5) * (_UNIT * magnitude + smallest)
    error = (found.double() - exact).abs()
    if not (error <= bound).all():
        worst = float((error / bound).nan_to_num(torch.inf).max())
        raise AssertionError(f"{what}: off by {worst:.3g} times what rounding allows")
