"""Measure the training loop's overhead: `python -m benchmarks.pretrain_loop PREP` (a prep folder).

A recipe's model and batch (`--recipe`, by default the demo's) on one worker, bfloat16. *Bare* is forward, backward and
AdamW on float32 masters, written with plain PyTorch on one prepared batch: no reading, orders, engine, journal,
checkpoints or checks. *Loop* is `pretrain.worker.train` with all of that. A bare step runs after every step of the
loop, in the same process; the ratio is the median of these pairs. The stall of a checkpoint is printed separately, and
so is the time from the call of `train` to the first step, fresh and resumed.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cluster.journal import read_journal
from cluster.process_group import configure_environment, join_process_group
from data_prep.finished.prepared import open_prepared
from pipeline.folder.recipe import load_run_config
from pretrain.config import PretrainConfig
from pretrain.data.batch import training_batch
from pretrain.data.lanes import LaneReader
from pretrain.engine.optimizer import adamw, set_learning_rate
from pretrain.model.loss import prediction_loss
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces
from pretrain.run import Run
from pretrain.schedule import learning_rate
from pretrain.step import LaunchedStep, StepResult
from pretrain.trainer import Trainer
from pretrain.worker import train

_ROUNDS = 3
_STEPS = 30
_WARM_UP = 3
_SEED = 0


class Bare:
    """The minimal training step: one model, one optimizer, one micro-batch that was read before."""

    def __init__(self, config: PretrainConfig, prep: Path) -> None:
        corpus, device = open_prepared(prep), torch.device("cpu")
        self._config = config
        self._masters = TwoStreamTransformer(config.model, corpus.tokenizer.vocab_size)
        self._model = TwoStreamTransformer(config.model, corpus.tokenizer.vocab_size).bfloat16()
        self._optimizer = adamw(self._masters, config.optimizer, fused=True)
        reader = LaneReader(corpus, "train", config.lanes, config.segment_tokens, _SEED)
        words = WordPieces.of_tokenizer(corpus.tokenizer, device)
        mixture = OrderMixture(config.objective, config.segment_tokens, words, device)
        lanes = range(config.micro_batch_lanes)
        self._batch = training_batch(reader, mixture, _SEED, 0, lanes, config.model.segment_encodings)
        self._memory: SegmentMemory = self._model.empty_memory(config.micro_batch_lanes)

    def step(self) -> None:
        """Run one optimizer step over as many micro-batches as the loop's."""
        batch = self._batch
        for _ in range(self._config.lanes // self._config.micro_batch_lanes):
            output = self._model(batch.tokens_BL, batch.content, batch.targets, self._memory)
            prediction_loss(output.logits_BPV, batch.wanted_BP).backward()
        pairs = list(zip(self._masters.parameters(), self._model.parameters(), strict=True))
        for master, parameter in pairs:
            assert parameter.grad is not None
            master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(self._masters.parameters(), self._config.optimizer.clip_norm)
        set_learning_rate(
            self._optimizer.param_groups, learning_rate(self._config.schedule, 0, self._config.num_steps)
        )
        self._optimizer.step()
        with torch.no_grad():
            for master, parameter in pairs:
                parameter.copy_(master)
                parameter.grad = None
        self._memory = output.memory


class SideBySide:
    """Times the loop's steps, including their record in the journal, and runs a bare step after each."""

    def __init__(self, bare: Bare) -> None:
        self._bare = bare
        self.loop_s: list[float] = []
        self.bare_s: list[float] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Patch the trainer to time its steps while the block runs."""
        train_step, record = Trainer.train_step, Trainer._record

        def timed_step(trainer: Trainer) -> LaunchedStep:
            started_s = time.perf_counter()
            launched = train_step(trainer)
            self.loop_s.append(time.perf_counter() - started_s)
            started_s = time.perf_counter()
            self._bare.step()
            self.bare_s.append(time.perf_counter() - started_s)
            return launched

        def timed_record(trainer: Trainer, result: StepResult) -> None:
            started_s = time.perf_counter()
            record(trainer, result)
            if not trainer.is_finished:  # an evaluation follows the last one
                self.loop_s[-1] += time.perf_counter() - started_s

        patched: Any = Trainer
        patched.train_step, patched._record = timed_step, timed_record
        try:
            yield
        finally:
            patched.train_step, patched._record = train_step, record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prep", type=Path)
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--steps", type=int, default=_STEPS, help="of each round")
    arguments = parser.parse_args()
    _one_worker()
    recipe = load_run_config(arguments.recipe).pretrain
    both = SideBySide(Bare(recipe, arguments.prep))
    pairs_s: list[tuple[float, float]] = []
    stalls_s, resumes_s, waits_s = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        for round_number in range(_ROUNDS):
            config = _config(recipe, (round_number + 1) * arguments.steps, arguments.steps)
            run = Run(config, _SEED, arguments.prep.absolute(), Path(temporary), frozenset({"num_steps"}))
            called_s = time.time()
            both.loop_s, both.bare_s = [], []
            with both.watching():
                train(run, torch.device("cpu"))
            steps = [r for r in read_journal(run.journal) if r.kind == "step"][-arguments.steps :]
            resumes_s.append(steps[0].facts["began_s"] - called_s)
            # The first steps warm up.
            pairs_s += list(zip(both.loop_s, both.bare_s, strict=True))[_WARM_UP:]
            waits_s += [step.facts["data_s"] for step in steps[_WARM_UP:]]
            checkpoints = [record for record in read_journal(run.journal) if record.name == "checkpoint"]
            stalls_s += [checkpoint.facts["stall_s"] for checkpoint in checkpoints[-1:]]
    loop_s = [one_s for one_s, _ in pairs_s]
    bare_median_s, loop_median_s = statistics.median(one_s for _, one_s in pairs_s), statistics.median(loop_s)
    ratio = statistics.median(one_s / bare_s for one_s, bare_s in pairs_s)
    between_checkpoints_s = recipe.checkpoint.every_steps * loop_median_s
    print(f"a step, bare model          {bare_median_s * 1e3:.1f} ms")
    print(f"a step in the loop          {loop_median_s * 1e3:.1f} ms, {ratio - 1:+.1%}")
    print(f"  of that waiting for data  {sum(waits_s) / sum(loop_s):.3%}")
    print(
        f"stall of a checkpoint           {statistics.median(stalls_s) * 1e3:.1f} ms, "
        f"{statistics.median(stalls_s) / between_checkpoints_s:.3%} at every {recipe.checkpoint.every_steps} steps"
    )
    print(
        f"from the call to a step     {resumes_s[0]:.2f} s fresh, {statistics.median(resumes_s[1:]):.2f} s resumed"
    )


def _config(recipe: PretrainConfig, num_steps: int, every_steps: int) -> PretrainConfig:
    values = recipe.model_dump(mode="json") | {"num_workers": 1, "num_steps": num_steps}
    values["schedule"] |= {"warmup_steps": 1}
    values["checkpoint"] |= {"every_steps": every_steps}
    values["validation"] |= {
        "every_steps": 10**6,
        "final_tokens": 4096,
        "during_tokens": 4096,
        "by_order": False,
    }
    return PretrainConfig.model_validate(values)


def _one_worker() -> None:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    configure_environment("gloo")
    torch.set_num_threads(1)
    join_process_group("gloo")


if __name__ == "__main__":
    main()
