"""The end of a run: its figures and the model's folder."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from pretrain.agreement import agreed_in_parts
from pretrain.evaluation.evaluator import Evaluator
from pretrain.run import Run
from pretrain.step import TrainState
from pretrain.weights import save_model

_MOST_COUNTED_TOKENS = 1 << 26
"""For the n-gram baselines: one worker counts while the others wait."""


def evaluated(run: Run, state: TrainState, evaluator: Evaluator, tick: Callable[[], None]) -> dict[str, Any]:
    """Evaluate and write `model/`; what `result.json` shall hold. Collective.

    `tick` is called in every worker wherever one gets on. Raises UserError in every worker when a block is damaged.
    """
    evaluation = evaluator.final(state.engine.module)
    masters = state.engine.masters()
    tick()

    def finished(part_done: Callable[[], None]) -> dict[str, Any]:
        counted_steps = min(state.cursor, -(-_MOST_COUNTED_TOKENS // run.config.tokens_per_step))
        baselines = evaluator.baselines(state.reader, counted_steps, part_done)
        tokenizer = run.prep_folder / "tokenizer.json"
        save_model(state.engine.module, run.folder / "model", tokenizer, masters, run.config.segment_tokens)
        part_done()
        return {
            "num_parameters": sum(master.numel() for master in masters.values()),
            "num_steps": state.step,
            "tokens_seen": state.step * run.config.tokens_per_step,
            "validation": evaluation.to_json() | baselines.to_json(),
            "world_size": dist.get_world_size(),
            "zero_stage": run.config.zero_stage,
            "backend": dist.get_backend(),
        }

    return agreed_in_parts(finished, tick)
