"""The stage in a real local Ray session."""

from pathlib import Path

import pytest

from cluster.ray_session import RayConfig, ray_session
from cluster.reporter import Reporter
from cluster.storage import sha256_file
from data_prep.config import PrepConfig
from data_prep.stage import run_prep


def test_ray_workers_write_the_same_bytes(
    config: PrepConfig, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    on_ray = tmp_path / "on_ray"
    with ray_session(RayConfig(num_cpus=2), tmp_path / "logs"):
        run_prep(config, 0, on_ray, Reporter())
    request.getfixturevalue("in_process")
    run_prep(config, 0, tmp_path / "alone", Reporter())
    for path in (tmp_path / "alone").rglob("*.*"):
        assert sha256_file(on_ray / path.relative_to(tmp_path / "alone")) == sha256_file(path)
    assert not (on_ray / "work").exists()
