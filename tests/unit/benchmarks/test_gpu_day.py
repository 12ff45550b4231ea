"""The day with a GPU: every part writes its results, none takes another with it, like is compared with like."""

import json
import operator
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu_day.__main__ import PARTS, markdown_table
from benchmarks.gpu_day.causal_model import CausalModel, training_flops
from benchmarks.gpu_day.day import NO_USE, SCALES, Day, StepShape
from benchmarks.gpu_day.generation_times import bytes_of_step
from benchmarks.gpu_day.problems import (
    by_flex,
    by_kernels,
    by_plain,
    by_sdpa_with_mask,
    one_stream,
    two_streams,
)
from benchmarks.gpu_day.step_profile import part_of
from benchmarks.gpu_day.targets import rows as target_rows
from benchmarks.gpu_day.timing import growth_exponent
from benchmarks.gpu_day.training_step import CausalStep, OurStep, attention_by
from benchmarks.gpu_day.warming import in_parallel
from pipeline.folder.recipe import load_run_config
from pretrain.inference.decoder import Decoder
from pretrain.model.fused.gpu.tile_sizes import table
from pretrain.model.transformer import TwoStreamTransformer

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")
TINY = SCALES["tiny"]
FP32_TOLERANCE = 1e-5


def run_day(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.gpu_day", "--out", str(folder), "--device", "cpu"]
    return subprocess.run(
        [*command, "--size", "tiny", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_part_writes_its_results_without_a_gpu(tmp_path: Path) -> None:
    done = run_day(tmp_path, "--minutes", "25")
    text = (tmp_path / "results.md").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + text
    assert NO_USE in text
    for part in PARTS:
        assert f"\n## {part.title}\n\n{part.name}: done" in text
        content = json.loads((tmp_path / f"{part.name}.json").read_text())
        assert content["measures"] == NO_USE
        assert content["tables"], part.name
        for title, rows in content["tables"].items():
            assert rows, title
            assert title in text
    tiles = json.loads((tmp_path / "tile_sizes.json").read_text())
    assert tiles.keys() >= table().keys()
    targets = json.loads((tmp_path / "targets.json").read_text())
    assert {row["held"] for row in targets if row["measured"] != "not measured"} <= {"yes", "no"}
    assert [row["target"] for row in targets if row["measured"] == "not measured"] == [
        f"{TINY.steps[0]}: MFU of 50%, of the data sheet's peak",
        f"{TINY.steps[0]}: MFU of at least 35%",
    ]


def test_parts_that_do_not_end_are_ended_and_the_others_go_on(tmp_path: Path) -> None:
    done = run_day(tmp_path, "--minutes", "0.03")
    assert done.returncode == 1, done.stderr
    text = (tmp_path / "results.md").read_text()
    assert text.count("ended by its time limit") == len(PARTS)
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        *(f"## {part.title}" for part in PARTS),
        "## Targets",
    ]


def test_the_measured_model_is_the_recipe() -> None:
    pretrain = load_run_config("base", ["prep.source.path=corpus"]).pretrain
    base = SCALES["base"]
    assert pretrain.model == base.config(pretrain.model.memory_tokens)
    assert pretrain.objective.target_share == base.target_share
    lanes = pretrain.lanes // pretrain.max_workers
    assert StepShape(pretrain.segment_tokens, pretrain.model.memory_tokens, lanes) in base.steps
    assert base.steps[0] == StepShape(1024, 512, 16)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("is_causal", [True, False])
def test_the_attentions_that_are_compared_compute_the_same(is_causal: bool) -> None:
    problem = one_stream(2, 2, 24, 16, is_causal, CPU).to(torch.float32)
    # On a CPU FlexAttention takes nothing that could want gradients.
    problem = replace(problem, inputs=tuple(None if x is None else x.detach() for x in problem.inputs))
    with torch.no_grad():
        expected = problem.mixed(by_plain)
        for attention in (by_flex(problem.mask, is_causal), by_sdpa_with_mask, by_kernels):
            assert (problem.mixed(attention) - expected).abs().max() < FP32_TOLERANCE


def test_both_streams_have_a_gap_groups_and_unfilled_memory() -> None:
    problem = two_streams(1, 2, 24, 8, 16, CPU)
    dense = problem.mask.dense()
    assert not dense.visible_BQK[:, :, :4].any()
    assert dense.visible_BQK[:, :, 4:8].any()
    assert dense.visible_BQK.shape == (2, 24 + 12, 8 + 24)
    assert problem.mask.largest_gap_tokens == 32


def test_gradients_of_the_peers_attention_are_those_of_the_plain_one() -> None:
    problem = one_stream(2, 2, 24, 16, False, CPU)
    expected = problem.solve(by_plain, torch.float32)
    for one, other in zip(problem.solve(by_sdpa_with_mask, torch.float32), expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one - other).abs().max() < 1e-4


def test_steps_of_both_models_lower_the_loss() -> None:
    shape = StepShape(16, 8, 1)
    with attention_by(kernels=False, device=CPU):
        for one in (OurStep(TINY, shape, CPU, dropout=False), CausalStep(TINY, shape, CPU, dropout=False)):
            losses = [float(one.step()) for _ in range(60)]
            assert sum(losses[-10:]) < sum(losses[:10])


def test_the_causal_model_sees_nothing_that_comes_later() -> None:
    torch.manual_seed(0)
    model = CausalModel(TINY.config(0, dropout=False), TINY.vocab_size, 8).eval()
    rows = []
    for last in (1, 2):
        tokens_BL = torch.tensor([[3, 4, 5, 6, last]])
        rows_BLD = model.embedding(tokens_BL) + model.position_LD[:5]
        for block in model.blocks:
            rows_BLD = block(rows_BLD)
        rows.append(rows_BLD)
    assert torch.equal(rows[0][:, :4], rows[1][:, :4])
    assert not torch.equal(rows[0][:, 4], rows[1][:, 4])


def test_flops_of_the_causal_model_are_those_of_its_products() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = TINY.config(0, dropout=False)
    model = CausalModel(config, TINY.vocab_size, 16)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, 16, dtype=torch.int64)).backward()
    of_scores = 3 * 2 * 16 * config.num_layers * 4 * 16 * config.num_heads * config.head_dim
    counted = counter.get_total_flops()
    expected = training_flops(config, TINY.vocab_size, 2, 16)
    # FLOPs of the attention's backward pass depend on how PyTorch makes it.
    assert expected - of_scores <= counted <= expected + of_scores


def test_a_generated_token_reads_all_weights_and_the_caches() -> None:
    config = TINY.config(0, dropout=False)
    decoder = Decoder(TwoStreamTransformer(config, TINY.vocab_size), 32)
    weights = sum(weight.numel() for weight in decoder.model.parameters())
    per_column = config.num_layers * config.num_heads * config.head_dim * 4
    assert bytes_of_step(decoder, 2, 11) - bytes_of_step(decoder, 2, 10) == 5 * per_column
    assert 0.8 * 4 * weights < bytes_of_step(decoder, 1, 0) < 4 * weights


def test_operations_belong_to_the_parts_that_they_are_of() -> None:
    assert part_of("rows_backward") == part_of("permcode_gpu::attend") == "attention"
    assert part_of("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT") == part_of("aten::mm") == "products"
    assert part_of("void at::native::vectorized_layer_norm_kernel<float>") == "rest"
    assert part_of("multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>") == "optimizer"
    assert part_of("logit_gradients") == "loss, without its products"


def test_calls_that_fail_or_take_too_long_do_not_keep_the_others_from_their_results() -> None:
    assert in_parallel(operator.truediv, [(1, 2), (1, 0), (3, 4)], seconds=60.0) == [0.5, None, 0.75]
    assert in_parallel(time.sleep, [(60.0,)], seconds=0.1) == [None]


def test_growth_is_the_exponent_of_a_power() -> None:
    lengths = [512, 1024, 2048]
    assert growth_exponent(lengths, [3.0 * n for n in lengths]) == pytest.approx(1.0)
    assert growth_exponent(lengths[::-1], [n**2 / 7 for n in lengths[::-1]]) == pytest.approx(2.0)


def test_targets_are_compared_with_what_was_measured(tmp_path: Path) -> None:
    shape = str(SCALES["base"].steps[0])
    step = {"segments": shape, "model": "ours"}
    times = {
        "L = K": 1024,
        "order": "any order",
        "attention": "SDPA with a mask",
        "kernels are faster by": 1.9,
    }
    files: dict[str, dict[str, list[dict[str, Any]]]] = {
        "step_times": {
            "Training step, bf16": [step | {"of causal tokens/s": 0.7, "MFU, data sheet peak": 0.36}]
        },
        "compiled_step_times": {
            "Training step with torch.compile, bf16": [
                step | {"of causal tokens/s": 0.81, "MFU, data sheet peak": 0.3}
            ]
        },
        "kernel_times": {"One attention, bf16": [times]},
    }
    for name, tables in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"tables": tables}))
    held = {row["target"]: (row["measured"], row["held"]) for row in target_rows(tmp_path, "base")}
    assert held[f"{shape}: MFU of 50%, of the data sheet's peak"] == (0.36, "no")
    assert held[f"{shape}: MFU of at least 35%"] == (0.36, "yes")
    assert held[f"{shape}: at least 0.8 of the tokens/s of a causal model of the same size"] == (0.81, "yes")
    by_order = {
        order: found
        for target, found in held.items()
        for order in ("left to right", "any order")
        if order in target
    }
    assert by_order == {"any order": (1.9, "no"), "left to right": ("not measured", "")}
    assert held["memory of a training pass is linear in L: exponent at most 1.1"] == ("not measured", "")


def test_rows_are_saved_one_by_one_and_tables_have_all_columns(tmp_path: Path) -> None:
    day = Day(tmp_path, "part", "cpu", TINY, limit_s=10.0)
    day.add("numbers", {"a": 1, "b": 0.12345678})
    assert json.loads((tmp_path / "part.json").read_text())["tables"]["numbers"] == [
        {"a": 1, "b": 0.12345678}
    ]
    day.add("numbers", {"a": True, "c": "x|y"})
    assert markdown_table(day.tables["numbers"]) == (
        "| a | b | c |\n| --- | --- | --- |\n| 1 | 0.1235 |  |\n| yes |  | x/y |\n"
    )
    assert not Day(tmp_path, "part", "cpu", TINY, limit_s=0.0).has_time(1.0, "nothing")
