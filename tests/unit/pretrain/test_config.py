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


AUTOREGRESSIVE = {"target_share": 1.0, "spans": 0, "infill": 0, "fill_in_the_middle": 1}


def test_a_causal_model_needs_an_autoregressive_objective_and_filling_in_the_middle_a_causal_model() -> None:
    causal = {"context": "causal"}
    config(model=causal, objective=AUTOREGRESSIVE)
    for change in ({"target_share": 0.9}, {"spans": 1}, {"infill": 1}, {"holes": 1}):
        with pytest.raises(ValidationError, match="model.context=causal is for autoregressive models"):
            config(model=causal, objective=AUTOREGRESSIVE | change)
    with pytest.raises(ValidationError, match="fill_in_the_middle needs model.context=causal"):
        config(objective=AUTOREGRESSIVE)


def test_several_holes_need_room() -> None:
    with pytest.raises(ValidationError, match="objective.holes needs 4 predicted tokens"):
        config(segment_tokens=6, objective={"holes": 1})
    config(segment_tokens=8, objective={"holes": 1})


def test_one_kind_of_order_is_enough() -> None:
    none = {"spans": 0, "left_to_right": 0, "infill": 0}
    with pytest.raises(
        ValidationError, match="one of spans, left_to_right, infill, holes, fill_in_the_middle"
    ):
        config(objective=none)
    config(objective=none | {"holes": 1})
