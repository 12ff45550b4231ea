"""How many positions the systems of an experiment need of the pretrained model."""

from collections.abc import Iterator

from finetune.experiment.config import ExperimentConfig

_LENGTHS = ("query_tokens", "candidate_tokens", "text_tokens", "segment_tokens", "extent_tokens")
"""Of systems' configs: what is read or written at once."""


def needed_positions(config: ExperimentConfig) -> Iterator[tuple[str, int]]:
    """(key, tokens) of everything that systems with the pretrained model's own positions read or write at once."""
    for name, system in config.systems.items():
        if getattr(system, "start", None) != "pretrained":
            continue
        for length in _LENGTHS:
            length_tokens = getattr(system, length, None)
            if length_tokens is not None:
                yield f"systems.{name}.{length}", length_tokens
