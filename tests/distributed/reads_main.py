"""One rank of a training run that looks for reads of the device in every step, in a process of the fork server."""

import json
import os
from pathlib import Path
from typing import Any

from pretrain.engine import module_engine
from pretrain.model import attention, block, dropout, feed_forward, loss
from pretrain.step import LaunchedStep, StepResult
from pretrain.trainer import Trainer
from tests.distributed import train_main
from tests.distributed.device_reads import DeviceReads
from tests.distributed.pretended_gpu import pretend_gpu

_OF_CPUS: tuple[tuple[Any, str], ...] = (
    (attention, "fusable"),
    (block, "add_norm_fusable"),
    (dropout, "_fusable"),
    (feed_forward, "bias_gelu_fusable"),
    (loss, "cross_entropy_fusable"),
)
"""What chooses the operators in C++; a GPU has others, and the plain ones."""


def main(given: dict[str, Any]) -> None:
    """Train as `train_main` does; leave `reads-RANK.json` in the run's folder: for each result, what was read for it.

    That is from the launch of a step to the figures that the host waits for next, its own or those of the step before.
    """
    for module, name in _OF_CPUS:
        setattr(module, name, lambda *_: False)
    found: list[dict[str, int]] = []
    active: list[DeviceReads] = []
    if given["pretends_gpu"]:
        pretend_gpu(lambda what: active[0].note(what) if active else None)
        described = module_engine.deepspeed_config
        module_engine.deepspeed_config = lambda *settings: described(*settings[:-1], on_gpu=True)
    launch, result_of = Trainer.train_step, Trainer._result

    def train_step(trainer: Trainer) -> LaunchedStep:
        if not active:
            active.append(DeviceReads().__enter__())
        return launch(trainer)

    def result(trainer: Trainer, launched: LaunchedStep) -> StepResult:
        known = result_of(trainer, launched)
        if active:
            reads = active.pop()
            reads.__exit__(None, None, None)
            found.append(dict(reads.places))
        return known

    patched: Any = Trainer
    patched.train_step, patched._result = train_step, result
    train_main.main(given)
    (Path(given["folder"]) / f"reads-{os.environ['RANK']}.json").write_text(json.dumps(found))
