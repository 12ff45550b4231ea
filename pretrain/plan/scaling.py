"""The time of a step on many GPUs: computing, traffic, and the part of the network's time that is not hidden.

Weak scaling: every GPU keeps its lanes, so computing per GPU stays and the network's part grows. A ring of N sends
(N - 1) / N of a tensor through every GPU's link for each reduce-scatter or all-gather, in N - 1 hops.
"""

from dataclasses import dataclass

_BACKWARD_SHARE = 2 / 3
"""Of a step's operations."""
_BUCKETS = 4
"""Collectives that one pass over all parameters is cut into, each paying the ring's hops."""


@dataclass(frozen=True)
class Network:
    """One GPU's link: `bytes_per_s` in each direction, `hop_s` the latency to the next GPU."""

    bytes_per_s: float
    hop_s: float


@dataclass(frozen=True)
class Exchange:
    """Rings over all parameters in one step: hidden behind a backward pass, behind any pass, or not hidden.

    ZeRO 0 and 1 reduce gradients after the last micro-batch, ZeRO 2 and 3 after each, as no GPU keeps them whole;
    ZeRO 1 and 2 gather the new weights, ZeRO 3 gathers them in both passes of every micro-batch (Rajbhandari et al.
    2020, section 7, and what DeepSpeed 0.19 does with several micro-batches).
    """

    in_last_backward: int = 0
    in_all_backwards: int = 0
    in_all_passes: int = 0
    after: int = 0

    @property
    def rings(self) -> int:
        """The number of all rings."""
        return self.in_last_backward + self.in_all_backwards + self.in_all_passes + self.after


def exchange(zero_stage: int, num_micro_batches: int) -> Exchange:
    """Return the traffic of one optimizer step."""
    if zero_stage == 0:
        return Exchange(in_last_backward=2)
    if zero_stage == 1:
        return Exchange(in_last_backward=1, after=1)
    if zero_stage == 2:
        return Exchange(in_all_backwards=num_micro_batches, after=1)
    return Exchange(in_all_passes=3 * num_micro_batches)


@dataclass(frozen=True)
class ScaledStep:
    """One optimizer step on `num_gpus`."""

    num_gpus: int
    wire_bytes: float
    """The bytes through every GPU's link, in each direction."""
    compute_s: float
    network_s: float
    shown_s: float
    """The part of `network_s` that computing does not hide."""

    @property
    def efficiency(self) -> float:
        """Tokens per second and GPU, as a share of one GPU's."""
        return self.compute_s / (self.compute_s + self.shown_s)


def scaled_step(
    num_parameters: int,
    num_gpus: int,
    zero_stage: int,
    num_micro_batches: int,
    compute_s: float,
    network: Network,
    element_bytes: int = 2,
) -> ScaledStep:
    """Compute one step on `num_gpus`; `compute_s` is the time that one GPU computes for its own lanes."""
    exchanged = exchange(zero_stage, num_micro_batches)
    ring_bytes = num_parameters * element_bytes * (num_gpus - 1) / num_gpus
    ring_s = ring_bytes / network.bytes_per_s + _BUCKETS * (num_gpus - 1) * network.hop_s
    backward_s = compute_s * _BACKWARD_SHARE
    shown_s = (
        max(0.0, exchanged.in_last_backward * ring_s - backward_s / num_micro_batches)
        + max(0.0, exchanged.in_all_backwards * ring_s - backward_s)
        + max(0.0, exchanged.in_all_passes * ring_s - compute_s)
        + exchanged.after * ring_s
    )
    return ScaledStep(num_gpus, exchanged.rings * ring_bytes, compute_s, exchanged.rings * ring_s, shown_s)
