"""What the workers of a stage need, and waiting until a cluster has it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveInt

from cluster.config import Config
from cluster.errors import RetryableError, UserError
from cluster.local_ray import session_folder
from cluster.reporter import Reporter

_SAY_EVERY_S = 30.0
_LOOK_S = 3.0
_FEWER_AFTER_S = 8.0
"""How long the full number of workers is waited for before fewer are taken, where the config allows fewer."""


class ResourcesConfig(Config):
    """The resources of a stage's workers on a Ray cluster."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """auto: GPUs if the cluster has any, or if the run had any before; the device of a begun run never changes."""
    gpus_per_worker: PositiveInt = 1
    cpus_per_worker: PositiveInt = 1
    placement: Literal["pack", "spread", "strict_spread"] = "pack"
    """pack: few nodes; spread: many nodes if possible; strict_spread: every worker on a node of its own."""
    wait_s: NonNegativeFloat = 600.0
    """How long to wait for resources that the cluster lacks or that others hold; then exit code 75."""

    def of_worker(self, on_gpu: bool) -> dict[str, float]:
        """Return one worker's resources by Ray's names."""
        return {"CPU": self.cpus_per_worker, **({"GPU": self.gpus_per_worker} if on_gpu else {})}


def uses_gpu(config: ResourcesConfig) -> bool:
    """Return whether workers of a stage that starts now run on GPUs; needs an open Ray session."""
    import ray

    return config.device == "gpu" or (config.device == "auto" and ray.cluster_resources().get("GPU", 0) > 0)


def wait_for_workers(
    what: str, sizes: Sequence[int], config: ResourcesConfig, on_gpu: bool, reporter: Reporter
) -> int:
    """Wait until Ray has room for the first of `sizes` (the most workers), and return that.

    A smaller size is taken when the larger ones find no room for 8 s. Says every 30 s what is wanted and what there
    is. The room is not kept. UserError when this machine's own Ray is too small, RetryableError when `wait_s` passes.
    """
    import ray
    from ray.util import remove_placement_group

    if session_folder() is not None:
        return _size_here(what, sizes, config, on_gpu, ray.cluster_resources())
    size, group = _wait(what, sizes, config, on_gpu, reporter)
    remove_placement_group(group)
    return size


def _wait(
    what: str, sizes: Sequence[int], config: ResourcesConfig, on_gpu: bool, reporter: Reporter
) -> tuple[int, Any]:
    """Return the number of workers and their placement group."""
    from ray.util import placement_group, remove_placement_group

    strategy = config.placement.upper()
    bundle = config.of_worker(on_gpu)
    # It stays in place while smaller ones are tried, so that an autoscaler sees what is wanted.
    full = placement_group([bundle] * sizes[0], strategy=strategy)
    began_s = said_s = time.monotonic()
    is_placed = False
    try:
        while True:
            if is_placed := full.wait(timeout_seconds=_LOOK_S):
                return sizes[0], full
            waited_s = time.monotonic() - began_s
            for size in sizes[1:] if waited_s >= _FEWER_AFTER_S else ():
                smaller = placement_group([bundle] * size, strategy=strategy)
                if smaller.wait(timeout_seconds=_LOOK_S):
                    return size, smaller
                remove_placement_group(smaller)
            if waited_s >= config.wait_s:
                raise RetryableError(
                    f"{_wanted(what, sizes, config, on_gpu)}, {available_text()}; waited {config.wait_s:g} s "
                    "(resources.STAGE.wait_s): run the same command again when there is room",
                    "missing resources",
                )
            if time.monotonic() - said_s >= _SAY_EVERY_S:
                said_s = time.monotonic()
                reporter.line(f"{_wanted(what, sizes, config, on_gpu)}, {available_text()}; waiting")
    finally:
        if not is_placed:
            remove_placement_group(full)


def _size_here(
    what: str, sizes: Sequence[int], config: ResourcesConfig, on_gpu: bool, there: Mapping[str, float]
) -> int:
    for size in sizes:
        if all(there.get(name, 0) >= size * amount for name, amount in config.of_worker(on_gpu).items()):
            return size
    if there.get("CPU", 0) < sizes[-1] * config.cpus_per_worker:
        raise UserError(
            f"{sizes[-1]} {what} workers do not fit on the {there.get('CPU', 0):g} CPUs Ray has: raise ray.num_cpus "
            "or lower the number of workers"
        )
    raise UserError(
        f"{sizes[-1]} {what} workers need {sizes[-1] * config.gpus_per_worker} GPUs, this machine has "
        f"{there.get('GPU', 0):g}: lower the number of workers, or set resources.STAGE.device=cpu"
    )


def _wanted(what: str, sizes: Sequence[int], config: ResourcesConfig, on_gpu: bool) -> str:
    least = f" (at least {sizes[-1]})" if len(sizes) > 1 else ""
    each = " and ".join(_amount(value, name) for name, value in config.of_worker(on_gpu).items())
    return f"{what} needs {_amount(sizes[0], 'worker')}{least} with {each} each ({config.placement})"


def available_text() -> str:
    """Return what the cluster has and what of it is free."""
    import ray

    total, free = ray.cluster_resources(), ray.available_resources()
    names = [name for name in ("CPU", "GPU") if total.get(name, 0)]
    parts = [f"{_amount(total[name], name)} ({free.get(name, 0):g} free)" for name in names]
    num_nodes = sum(1 for node in ray.nodes() if node["Alive"])
    return f"the cluster has {', '.join(parts) or 'no CPU'} on {_amount(num_nodes, 'node')}"


def _amount(value: float, name: str) -> str:
    return f"{value:g} {name}{'' if value == 1 else 's'}"
