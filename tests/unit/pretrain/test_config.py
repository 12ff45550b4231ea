"""Settings of a run that contradict each other are refused in one line."""

import pytest
from pydantic import ValidationError

from pretrain.config import PretrainConfig


def config(**changes: object) -> PretrainConfig:
    values: dict[str, object] = {"num_steps": 1000, "lanes": 16, "micro_batch_lanes": 4, "num_workers": 2}
    return PretrainConfig.model_validate(values | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lanes": 12}, "lanes=12 must be a multiple of num_workers * micro_batch_lanes = 2 * 4 = 8"),
        ({"num_steps": 100}, "warmup_steps=100 must be less than num_steps=100"),
        ({"zero_stage": 0, "offload_optimizer": True}, "needs zero_stage 1, 2 or 3, not 0"),
        ({"zero_stage": 2, "offload_parameters": True}, "needs zero_stage 3, not 2"),
        ({"deterministic": True, "zero_stage": 3}, "needs zero_stage 0, 1 or 2, not 3"),
        ({"deterministic": True, "offload_optimizer": True}, "needs offload_optimizer=false"),
        ({"deterministic": True, "lanes": 24}, "24 / 4 = 6"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match="Value error") as refusal:
        config(**changes)
    (error,) = refusal.value.errors()
    assert said in error["msg"]
    assert "\n" not in error["msg"]


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_stage": 3, "offload_optimizer": True, "offload_parameters": True},
        {"zero_stage": 1, "deterministic": True, "num_workers": 4},
        {"lanes": 24},
    ],
)
def test_what_goes_together_is_taken(changes: dict[str, object]) -> None:
    config(**changes)
