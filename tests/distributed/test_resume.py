"""kill -9 and resume: the same bits as an untouched run (with dropout and memory)."""

import json
import subprocess
import time
from pathlib import Path

import pytest
import torch

from cluster.journal import read_journal
from data_prep.finished.prepared import open_prepared
from pretrain.checkpoint.listing import step_folders
from pretrain.checkpoint.reading import CheckpointTensors
from pretrain.data.lanes import LaneReader
from pretrain.evaluation.evaluator import Evaluator
from pretrain.weights import load_pretrained
from tests.distributed.workers import Workers, final_state, small_config

_STEPS = 12


@pytest.fixture(scope="module")
def untouched(prep_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untouched") / "run"
    Workers(small_config(), prep_folder, folder, world_size=2).wait()
    return folder


def wait_for_checkpoint(workers: Workers, step: int) -> None:
    """Not for the step alone: its checkpoint is written beside the steps after it."""
    deadline_s = time.monotonic() + 240
    while not (workers.folder / "checkpoints" / f"step-{step:08d}").is_dir():
        assert time.monotonic() < deadline_s, "training did not get that far"
        assert any(process.poll() is None for process in workers.processes), (
            "training ended before it was killed"
        )
        time.sleep(0.005)


def kill_after_checkpoint(workers: Workers, step: int) -> None:
    wait_for_checkpoint(workers, step)
    workers.kill()


def shared_memory(process: "subprocess.Popen[bytes]") -> set[str]:
    """What the process has mapped of DeepSpeed's shared memory; Linux marks removed names "(deleted)"."""
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in maps if "/dev/shm/deepspeed" in line}


def test_killed_and_repeated_ends_with_the_same_bits_and_leaves_no_shared_memory(
    untouched: Path, prep_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    workers = Workers(small_config(), prep_folder, folder, world_size=2)
    wait_for_checkpoint(workers, 4)
    buffers = [shared_memory(process) for process in workers.processes]
    workers.kill()
    assert not (folder / "result.json").exists()
    assert all(buffers)
    assert all(name.endswith(" (deleted)") for names in buffers for name in names)
    Workers(small_config(), prep_folder, folder, world_size=2).wait()
    assert final_state(folder, _STEPS) == final_state(untouched, _STEPS)
    texts = [record.text for record in read_journal(folder / "journal.jsonl") if record.name == "start"]
    assert "starting at step 0" in texts[0]
    assert "resuming from checkpoint step-0000000" in texts[1]


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_gives_the_same_bits(
    untouched: Path, prep_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    kill_after_checkpoint(Workers(small_config(), prep_folder, folder, world_size=2), 8)
    weights = folder / "checkpoints" / "step-00000008" / "weights-00001.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 4
    weights.write_bytes(data)
    Workers(small_config(), prep_folder, folder, world_size=2).wait()
    assert final_state(folder, _STEPS) == final_state(untouched, _STEPS)
    warnings = [record.text for record in read_journal(folder / "journal.jsonl") if record.level == "warning"]
    assert len(warnings) == 1
    assert "step-00000008: weights-00001.safetensors is damaged" in warnings[0]


def test_one_worker_sees_the_same_data_and_nearly_the_same_losses(
    untouched: Path, prep_folder: Path, tmp_path: Path
) -> None:
    """The data cursor, the orders and the dropout do not depend on the world size; sums differ in the last bits."""
    folder = tmp_path / "run"
    Workers(small_config(num_workers=1), prep_folder, folder, world_size=1).wait()
    losses = [
        [record.metrics["loss"] for record in read_journal(run / "journal.jsonl") if record.kind == "step"]
        for run in (untouched, folder)
    ]
    assert len(losses[0]) == _STEPS
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)


def test_the_model_folder_holds_the_model_whose_result_is_reported(
    untouched: Path, prep_folder: Path
) -> None:
    config, corpus = small_config(), open_prepared(prep_folder)
    evaluator = Evaluator(
        config.validation, corpus, config.lanes, config.segment_tokens, config.lanes, torch.device("cpu")
    )
    reported = json.loads((untouched / "result.json").read_text())["validation"]
    found = evaluator.final(load_pretrained(untouched / "model"))
    assert reported["num_bytes"] == found.headline.num_bytes
    assert reported["model_bits_per_byte"] == pytest.approx(found.headline.bits_per_byte, rel=1e-2)
    # Two workers there, one here; float32 masters here, their bf16 copies there.
    assert reported["by_condition"] == pytest.approx(found.to_json()["by_condition"], rel=1e-2)
    reader = LaneReader(corpus, "train", config.lanes, config.segment_tokens, seed=3)
    for name, bits_per_byte in evaluator.baselines(reader, _STEPS).to_json().items():
        assert reported[name] == pytest.approx(bits_per_byte)


def test_memory_keeps_float32_under_bfloat16(untouched: Path) -> None:
    newest = CheckpointTensors(step_folders(untouched / "checkpoints")[0])
    layer_BMD = newest.memory(range(2)).layers_BMD[-1]
    assert layer_BMD.dtype == torch.float32
    assert (layer_BMD != layer_BMD.bfloat16()).any(), "it was rounded"


@pytest.mark.slow
def test_zero_1_and_2_in_float32_give_the_same_weights(prep_folder: Path, tmp_path: Path) -> None:
    weights = []
    for stage in (1, 2):
        folder = tmp_path / f"zero-{stage}"
        config = small_config(zero_stage=stage, precision="fp32", num_steps=5)
        Workers(config, prep_folder, folder, world_size=2).wait()
        weights.append(load_pretrained(folder / "model").state_dict())
    for name, value in weights[0].items():
        assert torch.allclose(value, weights[1][name], atol=1e-6), name


@pytest.mark.slow
def test_zero_1_in_float32_resumes_with_the_same_bits(prep_folder: Path, tmp_path: Path) -> None:
    config = small_config(zero_stage=1, precision="fp32")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    Workers(config, prep_folder, whole, world_size=2).wait()
    kill_after_checkpoint(Workers(config, prep_folder, killed, world_size=2), 4)
    Workers(config, prep_folder, killed, world_size=2).wait()
    assert final_state(killed, _STEPS) == final_state(whole, _STEPS)
