"""One rank that trains with and without evaluations, in a process that the fork server started."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster.process_group import configure_environment, join_process_group
from data_prep.finished.prepared import open_prepared
from pretrain.config import PretrainConfig
from pretrain.data.batch import training_batch
from pretrain.data.lanes import LaneReader
from pretrain.engine.training_engine import TrainingEngine
from pretrain.evaluation.evaluator import Evaluator
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces

STEPS, VALIDATION_LANES = 3, 3


def main(given: dict[str, Any]) -> None:
    """Leaves `rank-R.json` and, from rank 0, `masters.pt` in the given folder."""
    configure_environment("gloo")
    torch.set_num_threads(1)
    prep_folder, out = given["prep"], given["out"]
    config, device = PretrainConfig.model_validate(given["config"]), torch.device("cpu")
    join_process_group("gloo")
    corpus, world_size = open_prepared(Path(prep_folder)), dist.get_world_size()
    reader = LaneReader(corpus, "train", config.lanes, config.segment_tokens, seed=0)
    words = WordPieces.of_tokenizer(corpus.tokenizer, device)
    mixture = OrderMixture(config.objective, config.segment_tokens, words, device)
    num_lanes = config.lanes // world_size
    lanes = range(dist.get_rank() * num_lanes, (dist.get_rank() + 1) * num_lanes)
    found: dict[str, object] = {}
    for evaluates in (False, True):
        torch.manual_seed(0)
        engine = TrainingEngine(
            TwoStreamTransformer(config.model, corpus.tokenizer.vocab_size), config, world_size
        )
        evaluator = Evaluator(config.validation, corpus, VALIDATION_LANES, config.segment_tokens, 1, device)
        memory = engine.module.empty_memory(len(lanes))
        torch.manual_seed(1)
        for step in range(STEPS):
            batch = training_batch(reader, mixture, 0, step, lanes, with_documents=False)
            output = engine.forward(batch.tokens_BL, batch.content, batch.targets, memory)
            memory = output.memory
            engine.accumulate(prediction_loss(output.logits_BPV, batch.wanted_BP), dist.get_rank())
            engine.update(1e-2)
            if evaluates:
                evaluator.during(engine.module)
        pieces = engine.pieces()
        digest = hashlib.sha256()
        for piece in [*pieces.masters, *(piece for kind in pieces.moments.values() for piece in kind)]:
            digest.update(piece.values_X.numpy().tobytes())
        found[f"digest {evaluates}"] = digest.hexdigest()
        masters = engine.masters()
        if evaluates:
            found["final"] = evaluator.final(engine.module).to_json()
            if dist.get_rank() == 0:
                torch.save(masters, f"{out}/masters.pt")
        engine.close()
    Path(f"{out}/rank-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
