"""What training a system has come to."""

from dataclasses import dataclass

from finetune.training.best import Best


@dataclass
class FitState:
    """What training has come to; with weights and moments, all that makes the next step."""

    step: int = 0
    best: Best | None = None
    evaluations_since_better: int = 0
    """An evaluation that is only as good counts too."""
    skipped_in_a_row: int = 0
