"""How well the tokens of code are predicted, from the rank of every right one among the choices.

Shapes: D documents, T tokens of one.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.metrics.measured import Measured

FloatArray = NDArray[np.float64]


def token_accuracy(rank_DT: Sequence[FloatArray], name: str = "accuracy") -> Measured:
    """The share of tokens that are the first choice, in percent (CodeXGLUE's CodeCompletion-token).

    Documents are what intervals resample: tokens of one are alike.
    """
    return _over_tokens(name, rank_DT, lambda rank_T: 100.0 * (rank_T == 1))


def token_mrr(rank_DT: Sequence[FloatArray]) -> Measured:
    """The mean reciprocal rank; 0 for what is no choice at all, whose rank is infinite."""
    return _over_tokens("mrr", rank_DT, lambda rank_T: 1.0 / rank_T)


def _over_tokens(
    name: str, rank_DT: Sequence[FloatArray], of_ranks: Callable[[FloatArray], FloatArray]
) -> Measured:
    statistics_DS = np.array([[of_ranks(rank_T).sum(), len(rank_T)] for rank_T in rank_DT], dtype=np.float64)
    if not len(statistics_DS) or not statistics_DS[:, 1].sum():
        raise UserError("there is no code token to evaluate: the split is empty")
    # A resample may hold only documents without such a token.
    return Measured(name, statistics_DS, lambda sums: sums[..., 0] / np.maximum(sums[..., 1], 1))
