"""Metrics of token prediction, computed from the rank of every right token among the choices.

Shapes: D documents, T tokens of a document.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.metrics.measured import Measured

FloatArray = NDArray[np.float64]


def token_accuracy(rank_DT: Sequence[FloatArray], name: str = "accuracy") -> Measured:
    """Return the share of tokens that are the first choice, in percent (CodeXGLUE's CodeCompletion-token).

    Intervals resample documents, not tokens, because the tokens of one document are correlated.
    """
    return _over_tokens(name, rank_DT, lambda rank_T: 100.0 * (rank_T == 1))


def token_mrr(rank_DT: Sequence[FloatArray]) -> Measured:
    """Return the mean reciprocal rank; a token that is not among the choices has an infinite rank and counts as 0."""
    return _over_tokens("mrr", rank_DT, lambda rank_T: 1.0 / rank_T)


def _over_tokens(
    name: str, rank_DT: Sequence[FloatArray], of_ranks: Callable[[FloatArray], FloatArray]
) -> Measured:
    statistics_DS = np.array([[of_ranks(rank_T).sum(), len(rank_T)] for rank_T in rank_DT], dtype=np.float64)
    if not len(statistics_DS) or not statistics_DS[:, 1].sum():
        raise UserError("there is no code token to evaluate: the split is empty")
    # A resample may hold only documents without such a token.
    return Measured(name, statistics_DS, lambda sums: sums[..., 0] / np.maximum(sums[..., 1], 1))
