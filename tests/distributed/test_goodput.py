"""The goodput ledger of a training that is really killed, against the clock of whoever killed it."""

import signal
import time
from pathlib import Path

import pytest

from cluster.heartbeat import last_beat_s
from cluster.journal import read_journal
from pretrain.goodput import goodput
from tests.distributed.workers import Workers, small_config

_BEAT_S = 1.0
"""A killed process may have lived this much longer than its last beat."""


@pytest.mark.slow
def test_wall_time_of_a_killed_and_resumed_run_is_all_accounted_for(
    prep_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    config = small_config(num_workers=1, num_steps=20, checkpoint={"every_steps": 6})
    began_s = time.time()
    killer = {"PERMCODE_FAULT": "step.recorded:9"}
    (process,) = Workers(config, prep_folder, folder, world_size=1, environment=killer).processes
    assert process.wait(timeout=500) == -signal.SIGKILL
    killed_s = time.time()
    time.sleep(3)
    again_s = time.time()
    Workers(config, prep_folder, folder, world_size=1).wait()

    records = read_journal(folder / "journal.jsonl")
    found = goodput(records, last_beat_s(folder / "heartbeat"), time.time())
    assert found.parts.total_s == pytest.approx(found.wall_s, rel=1e-3)
    # Some time passes between the test's call and the process's beginning, and until it takes the run up.
    assert records[-1].time_s - records[0].time_s < found.wall_s < records[-1].time_s - began_s
    assert found.parts.down_s == pytest.approx(again_s - killed_s, abs=_BEAT_S)
    assert found.num_attempts == 2
    assert found.unexplained_s < 0.01 * found.wall_s
    assert found.parts.startup_s > 0
    remade = [record for record in records if record.kind == "step" and record.step in (7, 8, 9)]
    assert len(remade) == 6
    remade_s = sum(
        sum(record.facts[name] for name in ("data_s", "compute_s", "save_s", "evaluation_s"))
        for record in remade[3:]
    )
    assert remade_s <= found.parts.lost_s < remade_s + _BEAT_S
