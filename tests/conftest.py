"""What all tests need: a quiet environment, fixed examples and seeds, and one local Ray for those that use it."""

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

# No limit on an example's wall clock: it says how busy the machine is. Tests of speed measure CPU time.
settings.register_profile("seeded", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("seeded")
_EXPLORED_TIMES = 10
"""How many times the examples of `make test` the explore profile draws, whatever a test's own settings say."""

# Before anything imports Ray, MLflow or tokenizers: they read these once.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_TOKEN", "permcode-tests-" + "0" * 32)
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "agg")
# Ray runs its workers at niceness 15: on a busy machine they would hardly run at all.
os.environ.setdefault("RAY_worker_niceness", "0")
# Models here are tiny: torch's threads would wait for each other, and `make test` runs three tests at a time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU Triton interprets our kernels on the CPU; it looks when they are imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# The tests' own Ray is the local one, whatever the caller's shell points at.
os.environ.pop("RAY_ADDRESS", None)
# A shell that puts `make test` into the background lets it ignore interrupts, and what tests start would inherit that.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--hypothesis-profile explore` runs the property tests alone; otherwise draws depend on a test's source alone."""
    if config.getoption("hypothesis_profile") != "explore":
        # Hypothesis also draws constants of whatever modules are loaded: not the same in each of xdist's processes.
        nothing = providers.Constants()
        providers._get_local_constants = lambda: nothing
        return
    drawing = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]
    config.hook.pytest_deselected(items=[item for item in items if item not in drawing])
    items[:] = drawing
    for test in {item.obj for item in drawing}:  # type: ignore[attr-defined]
        used = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = settings(
            used, max_examples=_EXPLORED_TIMES * used.max_examples
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Generators that a test does not seed itself begin alike, whatever ran before it."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="module")
def ray_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A local Ray with two CPUs for the tests of one module; the value is its log folder."""
    from cluster.ray_session import RayConfig, ray_session

    log_folder = tmp_path_factory.mktemp("ray-logs")
    with ray_session(RayConfig(num_cpus=2), log_folder):
        yield log_folder
