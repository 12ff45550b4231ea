"""The training engine in real processes: every ZeRO stage is the same training, and loses nothing.

A few processes try many cases one after the other; the tests look at what they tell.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from pretrain.engine.optimizer import BETA1, parameter_groups
from tests.distributed.engine_cases import NUM_STEPS, RATE, Case, Seen, micro_batch_loss, new_model
from tests.distributed.fork_server import start_ranks

FEW = [
    Case(2),
    Case(3, micro_batch_lanes=1),
    Case(1, "fp32", micro_batch_lanes=1),
    Case(0, "fp32", layer_decay=0.5),
]
DETERMINISTIC = [Case(2, "bf16", deterministic=True), Case(1, "fp32", deterministic=True)]
ALONE = Case(1, "bf16", micro_batch_lanes=1)
MANY = [
    Case(stage, precision, micro_batch_lanes, offload)
    for precision in ("bf16", "fp32")
    for stage in (0, 1, 2, 3)
    for micro_batch_lanes in (2, 1)
    for offload in (False, True)
    if not (offload and stage == 0)
]
MANY_DETERMINISTIC = [
    Case(stage, precision, 1, deterministic=True) for precision in ("bf16", "fp32") for stage in (0, 1, 2)
]


def try_cases(cases: list[Case], folder: Path, world_size: int) -> list[Seen]:
    """Return the measurements of rank 0 of `world_size` processes in each case."""
    settings = {"folder": str(folder), "cases": [asdict(case) for case in cases]}
    processes = start_ranks("engine_main", settings, world_size, f"{folder}/{{}}.log")
    codes = [process.wait(timeout=550) for process in processes]
    log_text = "\n".join((folder / f"{rank}.log").read_text()[-2000:] for rank in range(world_size))
    assert not any(codes), log_text
    return [Seen(**seen) for seen in json.loads((folder / "seen.json").read_text())]


def check_nothing_is_lost(cases: list[Case], reported: list[Seen], world_size: int) -> None:
    """Restored, continued, stepped over: each as if nothing had been."""
    before = ""
    for case, seen in zip(cases, reported, strict=True):
        assert seen.starts_empty, case
        assert seen.half != seen.end
        assert seen.spoilt_applied == [False, False], case
        assert seen.after_spoilt == [seen.half, seen.half], case
        assert seen.masters_agree, case
        assert seen.elsewhere == before, f"{case} after the one before it"
        assert (seen.restored, seen.continued) == (seen.half, seen.end), case
        assert len(set(seen.weights)) <= 1, f"{case}: workers have different weights"
        # Without ZeRO every worker has all moments; shares are filled up, so they are not quite equal.
        share = 1 if case.zero_stage == 0 else 1 / world_size
        assert seen.share_read == pytest.approx(share, rel=0.3), case
        before = seen.half


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    return try_cases([*FEW, *DETERMINISTIC], tmp_path_factory.mktemp("two"), world_size=2)


def test_nothing_is_lost_whatever_the_stage(few: list[Seen]) -> None:
    check_nothing_is_lost([*FEW, *DETERMINISTIC], few, 2)


@pytest.mark.parametrize("number", [2, 3])
def test_an_engine_trains_as_plain_adamw_does(few: list[Seen], number: int) -> None:
    losses, norms = plain_training(FEW[number])
    assert few[number].norms == pytest.approx(norms, rel=1e-5)
    # Rank 0 tells the losses of its half of the lanes.
    assert few[number].losses == pytest.approx(losses, rel=1e-5)


def plain_training(case: Case) -> tuple[list[float], list[float]]:
    """Losses of the first half of the lanes, and gradient norms, of the same steps without DeepSpeed."""
    config = case.config(world_size=2)
    model = new_model(config)
    groups = parameter_groups(model, config.optimizer)
    settings = config.optimizer
    optimizer = torch.optim.AdamW(groups, betas=(BETA1, settings.beta2), eps=settings.epsilon)
    num_micro_batches = config.lanes // config.micro_batch_lanes
    losses, norms = [], []
    for step in range(NUM_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * group["rate_share"]
        optimizer.zero_grad()
        micro_losses = []
        for micro_batch in range(num_micro_batches):
            loss, _ = micro_batch_loss(model, model, config, step, micro_batch)
            (loss / num_micro_batches).backward()
            micro_losses.append(float(loss.detach()))
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)))
        optimizer.step()
        losses.append(sum(micro_losses[: num_micro_batches // 2]) / (num_micro_batches // 2))
    return losses, norms


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    return try_cases([*DETERMINISTIC, ALONE], tmp_path_factory.mktemp("one"), world_size=1)


def test_one_worker_and_two_make_the_same_bits(few: list[Seen], alone: list[Seen]) -> None:
    for one, two in zip(alone[:-1], few[len(FEW) :], strict=True):
        assert (one.half, one.end, one.norms) == (two.half, two.end, two.norms)
        assert one.weights == two.weights[:1]


def test_bfloat16_gradients_are_summed_in_float32(alone: list[Seen]) -> None:
    config = ALONE.config(world_size=1)
    model, num_micro_batches = new_model(config).bfloat16(), config.lanes // config.micro_batch_lanes
    sums = [torch.zeros(parameter.shape) for parameter in model.parameters()]
    for micro_batch in range(num_micro_batches):
        model.zero_grad()
        loss, _ = micro_batch_loss(model, model, config, 0, micro_batch)
        (loss / num_micro_batches).backward()
        for total, parameter in zip(sums, model.parameters(), strict=True):
            assert parameter.grad is not None
            total += parameter.grad
    norm = float(torch.nn.utils.get_total_norm(sums))
    assert alone[-1].norms[0] == pytest.approx(norm, rel=1e-6)
    rounded = float(torch.nn.utils.get_total_norm([total.bfloat16().float() for total in sums]))
    assert rounded != pytest.approx(norm, rel=1e-6), "rounded sums would show"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_nothing_is_lost_in_any_stage_precision_and_place(
    tmp_path: Path, world_size: int, precision: str
) -> None:
    cases = [
        case for case in MANY if case.precision == precision and 4 // case.micro_batch_lanes >= world_size
    ]
    check_nothing_is_lost(cases, try_cases(cases, tmp_path, world_size), world_size)


@pytest.mark.slow
def test_all_worlds_and_stages_make_the_same_bits(tmp_path: Path) -> None:
    ends: dict[str, set[str]] = {"bf16": set(), "fp32": set()}
    for world_size in (1, 2, 4):
        folder = tmp_path / str(world_size)
        folder.mkdir()
        for case, seen in zip(
            MANY_DETERMINISTIC, try_cases(MANY_DETERMINISTIC, folder, world_size), strict=True
        ):
            # One half way state and one end from it: worlds and stages can change there.
            ends[case.precision].add(f"{seen.half} {seen.end} {seen.continued} {seen.weights[0]}")
    assert {precision: len(found) for precision, found in ends.items()} == {"bf16": 1, "fp32": 1}


def test_cases_differ(few: list[Seen]) -> None:
    """The hashes would show a difference: another precision, another rate of the lower layers."""
    assert len({seen.end for seen in few}) == len(few)
    assert replace(FEW[3], layer_decay=1.0).config(2) != FEW[3].config(2)
