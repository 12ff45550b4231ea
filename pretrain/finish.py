"""The end of a run: its figures and the model's folder."""

import torch.distributed as dist

from cluster.storage import write_json
from pretrain.evaluation.evaluator import Evaluator
from pretrain.run import RESULT_NAME, Run
from pretrain.step import TrainState
from pretrain.weights import save_model

_MOST_COUNTED_TOKENS = 1 << 26
"""For the n-gram baselines: one worker counts while the others wait."""


def finish(run: Run, state: TrainState, evaluator: Evaluator) -> None:
    """Evaluate, write `model/`, and last `result.json`; collective."""
    evaluation = evaluator.final(state.engine.module)
    masters = state.engine.masters()
    if dist.get_rank() == 0:
        counted_steps = min(state.cursor, -(-_MOST_COUNTED_TOKENS // run.config.tokens_per_step))
        baselines = evaluator.baselines(state.reader, counted_steps)
        tokenizer = run.prep_folder / "tokenizer.json"
        save_model(state.engine.module, run.folder / "model", tokenizer, masters, run.config.segment_tokens)
        result = {
            "num_parameters": sum(master.numel() for master in masters.values()),
            "num_steps": state.step,
            "tokens_seen": state.step * run.config.tokens_per_step,
            "validation": evaluation.to_json() | baselines.to_json(),
            "world_size": dist.get_world_size(),
            "zero_stage": run.config.zero_stage,
            "backend": dist.get_backend(),
        }
        write_json(run.folder / RESULT_NAME, result)
    dist.barrier()
