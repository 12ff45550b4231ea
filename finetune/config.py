"""What the two downstream tasks are asked to do."""

from typing import Self

from pydantic import Field, model_validator

from cluster.config import Config


class TrainingConfig(Config):
    """The budget of one arm; the pretrained and the scratch arm get the same one."""

    steps: int = Field(gt=0)
    """Optimizer steps."""
    warmup_steps: int = Field(ge=0)
    """Steps of linear warm-up; a cosine down to a tenth of the peak follows."""
    learning_rate: float = Field(gt=0)
    """The peak, reached after the warm-up."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Of the matrices; vectors are not decayed."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest global norm of the gradient."""

    @model_validator(mode="after")
    def _warmup_fits(self) -> Self:
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} must be less than steps={self.steps}")
        return self


class CompletionConfig(Config):
    """Next code token given the previous ones of the file."""

    training: TrainingConfig = TrainingConfig(steps=40, warmup_steps=4, learning_rate=5e-4)
    num_lanes: int = Field(default=4, gt=0)
    """Documents read side by side: the batch size."""
    segment_tokens: int = Field(default=256, gt=0)
    """Tokens of each lane per step; the model's memory carries the rest."""
    max_document_tokens: int = Field(default=1024, gt=1)
    """Of a longer document one part of so many tokens is read, so that no long file outweighs the others."""
    max_eval_tokens: int = Field(default=20_000, gt=0)
    """Tokens of test documents that are scored."""
    max_baseline_bytes: int = Field(default=2_000_000, gt=0)
    """Text of task-train documents on which the bigram baseline is counted."""


class SearchConfig(Config):
    """A docstring finds its function among `num_candidates` functions."""

    training: TrainingConfig = TrainingConfig(steps=50, warmup_steps=5, learning_rate=3e-4)
    batch_pairs: int = Field(default=16, gt=1)
    """Pairs of docstring and function per step; the others of the batch are the negatives."""
    query_tokens: int = Field(default=32, gt=0)
    """A docstring is cut after so many tokens."""
    code_tokens: int = Field(default=128, gt=0)
    """A function is cut after so many tokens."""
    temperature: float = Field(default=0.05, gt=0)
    """Of the contrastive softmax over cosine similarities."""
    num_candidates: int = Field(default=200, ge=20)
    """Functions in one group; every docstring of the group searches all of them."""
    max_groups: int = Field(default=3, gt=0)
    """Groups of test functions that are evaluated, at most."""
    max_train_pairs: int = Field(default=4_000, gt=1)
    """Pairs taken from task-train documents, at most."""
    min_query_words: int = Field(default=3, gt=0)
    """A shorter first paragraph does not tell functions apart; it is left out."""
    min_code_lines: int = Field(default=3, gt=0)
    """A function with fewer non-blank lines (signature included, docstring not) is left out."""


class FinetuneConfig(Config):
    """Both tasks."""

    completion: CompletionConfig = CompletionConfig()
    search: SearchConfig = SearchConfig()
