"""A training blown up by its learning rate, from the command line: what its last line says leads on."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from cluster.journal import read_journal
from tests.integration.smoke_run import command, copy_corpus, only, run

_STEPS = 12


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_command_that_a_diverged_training_ends_with_trains_on_to_the_end(tmp_path: Path) -> None:
    corpus, out = copy_corpus(tmp_path / "corpus"), tmp_path / "my run"
    enormous = command("pretrain", out, corpus, "pretrain.schedule.peak_learning_rate=1e30")
    ended = run(enormous, expect=2)
    (line,) = ended.stderr.splitlines()[-1:]
    assert line.startswith("permcode: error: training diverged: the loss was not finite in 5 steps in a row")
    found = re.search(r"`permcode (.*)`", line)
    assert found is not None
    run([sys.executable, "-m", "pipeline.cli", *shlex.split(found[1])])
    pretrain = only(out, "pretrain-*")
    assert json.loads((pretrain / "result.json").read_text())["num_steps"] == _STEPS
    steps = [record for record in read_journal(pretrain / "journal.jsonl") if record.kind == "step"]
    assert [record.step for record in steps][-_STEPS:] == [*range(1, _STEPS + 1)]
    assert all(record.metrics["loss"] < 10 for record in steps[-_STEPS:])
    run([sys.executable, "-m", "pipeline.cli", "audit", str(out), "--read"])
