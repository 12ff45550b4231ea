"""How many workers a stage gets, and what failed workers mean for the command."""

import pytest
from pydantic import ValidationError

from cluster import resources
from cluster.errors import FailureKind, UserError
from cluster.reporter import Reporter
from cluster.resources import ResourcesConfig, uses_gpu, wait_for_workers
from pipeline.folder.config_errors import explain
from pretrain.config import PretrainConfig
from pretrain.worker_failures import failure_of


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(resources, "session_folder", lambda: tmp_path)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 2.0, "GPU": 1.0})


@pytest.mark.usefixtures("small_machine")
def test_one_gpu_of_two_is_an_error_and_not_a_run_on_cpus() -> None:
    assert uses_gpu(ResourcesConfig())
    with pytest.raises(UserError, match=r"2 pretraining workers need 2 GPUs, this machine has 1"):
        wait_for_workers("pretraining", (2,), ResourcesConfig(), True, Reporter())
    assert wait_for_workers("pretraining", (2,), ResourcesConfig(device="cpu"), False, Reporter()) == 2


@pytest.mark.usefixtures("small_machine")
def test_the_most_workers_that_fit_are_taken() -> None:
    assert wait_for_workers("pretraining", (4, 2, 1), ResourcesConfig(), False, Reporter()) == 2
    assert wait_for_workers("pretraining", (4, 2, 1), ResourcesConfig(), True, Reporter()) == 1
    with pytest.raises(UserError, match=r"^3 pretraining workers do not fit on the 2 CPUs .*ray\.num_cpus"):
        wait_for_workers("pretraining", (3,), ResourcesConfig(), False, Reporter())


@pytest.mark.parametrize(
    ("lanes", "deterministic", "counts"),
    [(24, False, (6, 4, 3, 2)), (16, True, (4, 2)), (16, False, (4, 2))],
)
def test_elastic_runs_have_as_many_workers_as_divide_the_lanes(
    lanes: int, deterministic: bool, counts: tuple[int, ...]
) -> None:
    most = counts[0]
    config = PretrainConfig.model_validate(
        {
            "num_steps": 1000,
            "lanes": lanes,
            "micro_batch_lanes": 2,
            "num_workers": {"min": 2, "max": most},
            "deterministic": deterministic,
        }
    )
    assert config.worker_counts == counts
    assert config.max_workers == most


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "config: num_workers = 0: must be greater than 0"),
        ({"min": 0, "max": 2}, "config: num_workers.min = 0: must be greater than 0"),
        ({"min": 3, "max": 2}, "config: num_workers: min=3 must not be more than max=2"),
        ({"min": 1, "max": 2, "most": 3}, "config: unknown key num_workers.most = 3"),
    ],
)
def test_a_wrong_number_of_workers_is_one_line_about_the_form_given(given: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PretrainConfig.model_validate({"num_steps": 1000, "num_workers": given})
    assert explain(caught.value, PretrainConfig).startswith(message)


class ActorDiedError(Exception):
    """As Ray's."""


@pytest.mark.parametrize(
    ("causes", "kind", "shown"),
    [
        ([RuntimeError("Gloo connectFullMesh failed with ...")], "network", "Gloo connectFullMesh"),
        (
            [
                RuntimeError("Connection closed by peer [10.0.0.2]"),
                ActorDiedError("The actor died unexpectedly"),
            ],
            "lost worker",
            "The actor died",
        ),
        ([RuntimeError("torch.OutOfMemoryError: CUDA out of memory")], "out of memory", "CUDA out of memory"),
        ([RuntimeError("StorageLost: node 10.0.0.2 does not see it")], "storage", "StorageLost"),
        ([RuntimeError("Connection reset"), KeyError("a bug")], None, "a bug"),
        (
            [RuntimeError("Traceback (most recent call last):\n  File x\nValueError: 3 is odd")],
            None,
            "3 is odd",
        ),
    ],
)
def test_the_cause_of_a_failure_counts_and_not_its_consequences(
    causes: list[Exception], kind: FailureKind | None, shown: str
) -> None:
    class TrainingFailed(Exception):
        worker_failures = dict(enumerate(causes))

    failure = failure_of(TrainingFailed())
    assert getattr(failure, "kind", None) == kind
    assert shown in str(failure)
