"""The end of a run: its figures and the model's folder."""

from typing import Any

import torch.distributed as dist

from pretrain.evaluation.evaluator import Evaluator
from pretrain.run import Run
from pretrain.step import TrainState
from pretrain.weights import save_model

_MOST_COUNTED_TOKENS = 1 << 26
"""For the n-gram baselines: one worker counts while the others wait."""


def evaluated(run: Run, state: TrainState, evaluator: Evaluator) -> dict[str, Any]:
    """Evaluate and write `model/`; what `result.json` shall hold, on the first worker. Collective."""
    evaluation = evaluator.final(state.engine.module)
    masters = state.engine.masters()
    if dist.get_rank() > 0:
        return {}
    counted_steps = min(state.cursor, -(-_MOST_COUNTED_TOKENS // run.config.tokens_per_step))
    baselines = evaluator.baselines(state.reader, counted_steps)
    tokenizer = run.prep_folder / "tokenizer.json"
    save_model(state.engine.module, run.folder / "model", tokenizer, masters, run.config.segment_tokens)
    return {
        "num_parameters": sum(master.numel() for master in masters.values()),
        "num_steps": state.step,
        "tokens_seen": state.step * run.config.tokens_per_step,
        "validation": evaluation.to_json() | baselines.to_json(),
        "world_size": dist.get_world_size(),
        "zero_stage": run.config.zero_stage,
        "backend": dist.get_backend(),
    }
