"""GPUs that cannot train a run are refused before anything starts, and what they lack is reported.

No GPU is used: what its driver says is replaced.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cluster.errors import UserError
from cluster.resources import ResourcesConfig
from pipeline.folder.recipe import load_run_config
from pipeline.run.stages import build_stages
from pretrain import gpu_check
from pretrain.gpu_check import check_gpu, check_gpus_here, check_precision
from pretrain.model.fused.gpu import choice
from pretrain.model.fused.preflight import attention_check

GIB = 1 << 30
GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A machine with one GPU, whose properties can be changed."""
    found = SimpleNamespace(name="NVIDIA A100", capability=(8, 0), total_memory=79 * GIB, has_triton=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: found.name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: found.capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(choice, "find_spec", lambda name: object() if found.has_triton else None)
    monkeypatch.setattr(gpu_check, "_DRIVER", tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


def test_a_gpu_with_enough_memory_and_triton_passes(gpu: SimpleNamespace) -> None:
    config = load_run_config("base").pretrain
    assert check_gpu(config, 32_000, 2, GPU) == ""
    assert check_gpus_here(config, 32_000, ResourcesConfig()) == ()
    assert attention_check(build=False).level == "ok"


def test_too_little_memory_is_refused_with_a_change_that_fits(gpu: SimpleNamespace) -> None:
    gpu.total_memory = 20 * GIB
    config = load_run_config("xl").pretrain
    # As the real launch: the change is one that the config takes.
    with pytest.raises(
        UserError, match=r"^the run needs [\d.]+ GiB on each GPU, [\d.]+ more than the 20 of NVIDIA"
    ):
        check_gpu(config, 49_152, 8, GPU)
    gpu.total_memory = 40 * GIB
    with pytest.raises(UserError, match=r"it fits with pretrain\.\w+=\w+.* \([\d.]+ GiB\)$"):
        check_gpu(config, 49_152, 8, GPU)


def test_fewer_workers_hold_more_each(gpu: SimpleNamespace) -> None:
    config = load_run_config("xl").pretrain
    gpu.total_memory = 60 * GIB
    assert check_gpu(config, 49_152, 8, GPU) == ""
    with pytest.raises(UserError, match="GiB on each GPU"):
        check_gpu(config, 49_152, 2, GPU)


def test_an_old_gpu_is_refused_in_bf16_and_gets_plain_operations_in_float32(gpu: SimpleNamespace) -> None:
    gpu.name, gpu.capability, gpu.total_memory = "Tesla V100", (7, 0), 32 * GIB
    config = load_run_config("small").pretrain
    with pytest.raises(UserError) as caught:
        check_gpu(config, 32_000, 1, GPU)
    assert str(caught.value) == (
        "Tesla V100 (compute capability 7.0) does not compute in bf16, which needs 8.0 or newer: set precision=fp32, "
        "or resources.STAGE.device=cpu"
    )
    check_precision("bf16", torch.device("cpu"))
    exact = config.model_copy(update={"precision": "fp32", "micro_batch_lanes": 1})
    assert check_gpu(exact, 32_000, 1, GPU) == "Tesla V100 is older than compute capability 8.0"
    assert attention_check(build=False).level == "warning"


def test_without_triton_plain_operations_are_used_and_doctor_names_the_fix(gpu: SimpleNamespace) -> None:
    gpu.has_triton = False
    reason = "Triton is not installed (pip install triton)"
    assert check_gpu(load_run_config("base").pretrain, 32_000, 1, GPU) == reason
    check = attention_check(build=False)
    assert (check.level, check.fix) == ("warning", "install Triton: pip install -c constraints.txt triton")


@pytest.mark.parametrize("elsewhere", ["cpu", "cluster", None])
def test_a_run_checks_the_gpus_of_this_machine_before_prep(
    elsewhere: str | None, gpu: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.total_memory = GIB
    overrides = ["resources.pretrain.device=cpu"] if elsewhere == "cpu" else []
    if elsewhere == "cluster":
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    stages = {stage.name: stage for stage in build_stages(load_run_config("base", overrides))}
    if elsewhere is not None:
        assert stages["pretrain"].check_inputs(tmp_path) == ()
        return
    with pytest.raises(UserError, match="more than the 1 of NVIDIA A100"):
        stages["pretrain"].check_inputs(tmp_path)
