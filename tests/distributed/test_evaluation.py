"""Evaluation under DeepSpeed: training ends with the same bits, figures are those of one process."""

import json
from pathlib import Path

import pytest
import torch

from data_prep.finished.prepared import open_prepared
from pretrain.config import PretrainConfig
from pretrain.evaluation.evaluator import Evaluator
from pretrain.model.transformer import TwoStreamTransformer
from tests.distributed.evaluation_main import VALIDATION_LANES
from tests.distributed.fork_server import start_ranks
from tests.distributed.workers import small_config

_RANKS = 2
_TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
"""One process computes with the float32 weights, the workers in bfloat16 with their copies."""


def run_ranks(prep_folder: Path, out: Path, config: PretrainConfig) -> None:
    settings = {"prep": str(prep_folder), "out": str(out), "config": config.model_dump(mode="json")}
    processes = start_ranks("evaluation_main", settings, _RANKS, f"{out}/rank-{{}}.log")
    try:
        codes = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, code in enumerate(codes):
        assert code == 0, (out / f"rank-{rank}.log").read_text(errors="replace")[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "precision", "settings"),
    [
        (0, "fp32", {}),
        (1, "bf16", {}),
        (2, "bf16", {"recompute": "layers"}),
        (3, "fp32", {}),
        (3, "bf16", {}),
        (2, "fp32", {"compile": True}),
    ],
)
def test_training_ends_with_the_same_bits_and_two_ranks_find_what_one_does(
    prep_folder: Path, tmp_path: Path, stage: int, precision: str, settings: dict[str, bool]
) -> None:
    """Three lanes on two ranks: one of them makes a pass for nothing."""
    config = small_config(
        zero_stage=stage,
        precision=precision,
        validation={"during_tokens": 192, "during_order_tokens": 96, "final_tokens": 1024},
        **settings,
    )
    run_ranks(prep_folder, tmp_path, config)
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(_RANKS)]
    for rank in ranks:
        assert rank["digest True"] == rank["digest False"]
        assert rank["final"] == ranks[0]["final"]
    corpus = open_prepared(prep_folder)
    model = TwoStreamTransformer(config.model, corpus.tokenizer.vocab_size)
    model.load_state_dict(torch.load(tmp_path / "masters.pt"))
    evaluator = Evaluator(
        config.validation,
        corpus,
        VALIDATION_LANES,
        config.segment_tokens,
        VALIDATION_LANES,
        torch.device("cpu"),
    )
    alone = evaluator.final(model).to_json()
    reported = ranks[0]["final"]
    assert reported["num_bytes"] == alone["num_bytes"]
    assert reported["by_condition"] == pytest.approx(alone["by_condition"], rel=_TOLERANCE[precision])
    assert reported["model_standard_error"] == pytest.approx(
        alone["model_standard_error"], rel=10 * _TOLERANCE[precision]
    )
