"""Bits per byte and their standard error, from sums over documents that can be added up over lanes and workers.

Shapes: D documents.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_SUMS = 6
"""Documents, nats, bytes, and the sums of nats squared, nats times bytes, bytes squared."""


@dataclass(frozen=True)
class Estimate:
    """Bits per byte of some documents' scored tokens."""

    bits_per_byte: float
    standard_error: float | None
    """Of choosing other documents; None with fewer than two of them."""
    num_bytes: int
    """UTF-8 bytes of the scored tokens."""
    num_documents: int

    @classmethod
    def of(cls, sums: NDArray[np.float64]) -> "Estimate | None":
        """The ratio of sums and the standard error of a ratio (Cochran 1977, "Sampling Techniques", ch. 6).

        Documents are the unit that is drawn. None where no byte was scored.
        """
        num_documents, nats, num_bytes, nats_squared, nats_times_bytes, bytes_squared = map(float, sums)
        if num_bytes == 0:
            return None
        ratio = nats / num_bytes
        # Sum over documents of (nats - ratio * bytes)^2; rounding may leave it a little below 0.
        residual = max(0.0, nats_squared - 2 * ratio * nats_times_bytes + ratio**2 * bytes_squared)
        standard_error = None
        if num_documents >= 2:
            spread = math.sqrt(residual * num_documents / (num_documents - 1)) / num_bytes
            standard_error = spread / math.log(2.0)
        return cls(ratio / math.log(2.0), standard_error, int(num_bytes), int(num_documents))


def document_sums(nats_D: NDArray[np.float64], bytes_D: NDArray[np.float64]) -> NDArray[np.float64]:
    """Float64 [D, NUM_SUMS]: what every document adds."""
    return np.stack([np.ones_like(nats_D), nats_D, bytes_D, nats_D**2, nats_D * bytes_D, bytes_D**2], axis=1)
