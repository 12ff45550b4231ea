"""What all tests need: a quiet environment and one local Ray for those that use it."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No limit on an example's wall clock: it says how busy the machine is. Tests of speed measure CPU time.
settings.register_profile("permcode", deadline=None)
settings.load_profile("permcode")

# Before anything imports Ray, MLflow or tokenizers: they read these once.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_TOKEN", "permcode-tests-" + "0" * 32)
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "agg")
# Models here are tiny: torch's threads would wait for each other, and `make test` runs two tests at a time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests' own Ray is the local one, whatever the caller's shell points at.
os.environ.pop("RAY_ADDRESS", None)
# A shell that puts `make test` into the background lets it ignore interrupts, and what tests start would inherit that.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def ray_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A local Ray with two CPUs for the tests of one module; the value is its log folder."""
    from cluster.ray_session import RayConfig, ray_session

    log_folder = tmp_path_factory.mktemp("ray-logs")
    with ray_session(RayConfig(num_cpus=2), log_folder):
        yield log_folder
