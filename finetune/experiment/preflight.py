"""A check of an experiment before it runs: reads its data and builds its systems, without training or writing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from data_prep.tokenizer import CodeTokenizer
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.job import Job
from finetune.experiment.jobs import JobContext
from finetune.experiment.results import cut_texts
from finetune.modalities.base import cut_of
from finetune.modalities.ranking import Pool
from finetune.systems.base import Base
from finetune.systems.saved import count_parameters, module_of
from pretrain.weights import ModelDescription


def survey(config: ExperimentConfig, model: Path, prep: Path | None) -> list[str]:
    """Return a line about the task's items and one per system. Raises UserError for unusable data or settings.

    Systems are built on the CPU; `model` and `prep` are as for `run_experiment`.
    """
    context = JobContext.open(config, model, prep, torch.device("cpu"))
    data = context.data
    facts = "".join(
        f"; {_number(value)} {name.replace('_', ' ')}" for name, value in data.facts.items() if value
    )
    lines = [
        f"items: {len(data.train):,} for training, {_num_items(data.valid):,} for validation, "
        f"{_num_items(data.test):,} for the test{facts}"
    ]
    for name in config.systems:
        lines.append(f"{name}: {_description(config, context, name)}")
    return lines


def survey_before_pretraining(
    config: ExperimentConfig, description: ModelDescription, tokenizer: CodeTokenizer, prep: Path
) -> None:
    """Raise UserError for data or settings that cannot be used with the model that `description` describes."""
    context = JobContext.of_base(config, Base(description, tokenizer, None, torch.device("cpu")), prep)
    context.check([Job(name, config.seed, Path()) for name in config.systems])


def _num_items(items: Pool | Sequence[Any]) -> int:
    return len(items.queries) if isinstance(items, Pool) else len(items)


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def _description(config: ExperimentConfig, context: JobContext, name: str) -> str:
    system = context.build(Job(name, config.seed, Path()))
    if not config.systems[name].learns:
        return "nothing to train"
    training, module = config.training_of_system(name), module_of(system)
    assert module is not None
    num_parameters, num_trained = count_parameters(module)
    rates = config.rates_to_try(name, config.seed)
    parts = [
        f"{num_parameters:,} parameters, {num_trained:,} trained",
        f"{training.steps:,} steps of {training.batch_tokens:,} tokens"
        + (f" at each of {len(rates)} learning rates" if rates else ""),
        *(f"{text} cut" for text in cut_texts(cut_of(system))),
    ]
    return "; ".join(parts)
