"""How long the workers of pretraining wait for each other."""

from pathlib import Path

import pytest

from cluster.reporter import Reporter
from cluster.resources import ResourcesConfig
from pretrain.config import PretrainConfig
from pretrain.run import Run
from pretrain.stage import _workers


@pytest.mark.parametrize("hang_timeout_s", [10.0, 1800.0, 7200.5])
def test_the_watchdog_speaks_before_the_process_group_gives_up(tmp_path: Path, hang_timeout_s: float) -> None:
    """It names the worker that hangs; the process group's error names any of them. Starting takes minutes anyway."""
    config = PretrainConfig.model_validate({"num_steps": 1000, "health": {"hang_timeout_s": hang_timeout_s}})
    collective_timeout_s = _workers(
        Run(config, 0, tmp_path, tmp_path), ResourcesConfig(), Reporter()
    ).collective_timeout_s
    assert collective_timeout_s > max(600, hang_timeout_s + 5)
