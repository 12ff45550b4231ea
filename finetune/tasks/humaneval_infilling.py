"""HumanEval-Infilling: holes in HumanEval's solutions are filled, and the functions are run against HumanEval's tests.

Bavarian et al., "Efficient Training of Language Models to Fill in the Middle", 2022. A hole is a line, several lines or
a random span of a solution. Every metric is reported for all holes and by kind; the headline metric is pass@k. The set
has no training data: holes of these kinds are made in the documents of a corpus, if there is one, and validation during
training uses those and exact match.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator, model_validator

from cluster.config import LocalPath
from cluster.errors import UserError
from finetune.formats.pair_files import PairSource
from finetune.formats.records import read_records
from finetune.metrics.edit import edit_similarity
from finetune.metrics.exact import exact_match
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import run_python
from finetune.syntax import prose_lines
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.derived import derived_splits
from finetune.tasks.humaneval_problems import Problem, measure_pass_at_k
from finetune.tasks.infilling import whole_lines
from finetune.tasks.splits import drawn
from finetune.tasks.writing import references

HoleKind = Literal["single_line", "multi_line", "random_span"]
FILE_NAMES: dict[HoleKind, str] = {
    "single_line": "HumanEval-SingleLineInfilling.jsonl.gz",
    "multi_line": "HumanEval-MultiLineInfilling.jsonl.gz",
    "random_span": "HumanEval-RandomSpanInfillingLight.jsonl.gz",
}
"""The published files."""
_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")
_MOST_LINES = 5
_BEFORE_CHARACTERS, _AFTER_CHARACTERS = 1200, 600


@dataclass(frozen=True)
class HoleProblem:
    """A hole in a solution: `problem.prompt` is the text before it, `suffix` the text after it."""

    kind: HoleKind
    problem: Problem
    suffix: str


def read_holes(folder: Path, kind: HoleKind) -> list[HoleProblem]:
    """Return the holes of a published file. Raise UserError for a damaged file, or a row that is not such a hole."""
    path, found = folder / FILE_NAMES[kind], []
    for number, record in enumerate(read_records(path, _FIELDS), start=1):
        where = f"{path} record {number}"
        for field in _FIELDS:
            if not isinstance(record[field], str):
                raise UserError(
                    f"{where}: field {field!r} must be a text, not {type(record[field]).__name__}"
                )
        if not record["canonical_solution"].strip():
            raise UserError(f"{where}: the hole is empty (canonical_solution)")
        problem = Problem(
            record["task_id"],
            record["prompt"],
            record["entry_point"],
            record["canonical_solution"],
            record["test"],
        )
        found.append(HoleProblem(kind, problem, record["suffix"]))
    (key, times), *_ = Counter(one.problem.key for one in found).most_common(1)
    if times > 1:
        raise UserError(f"{path} has {times} records with the task_id {key}: each hole has its own")
    return found


class HumanEvalInfillingConfig(PairSource, TaskConfigBase):
    """The settings of HumanEval-Infilling; `folder` has the published files.

    There are `samples` test items for each hole; more than one makes sense only for systems that sample their tokens.
    """

    modality: ClassVar[ModalityName] = "write"
    has_suffix: ClassVar[bool] = True
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"workers", "per_document"}

    kind: Literal["humaneval_infilling"] = "humaneval_infilling"
    folder: LocalPath
    """The folder of the published files."""
    test: Literal["HumanEval-Infilling"] = "HumanEval-Infilling"
    source: str = "prompt"
    target: str = "canonical_solution"
    holes: tuple[HoleKind, ...] = ("single_line", "multi_line", "random_span")
    """The kinds of holes."""
    per_kind: PositiveInt | None = None
    """The maximum number of holes of each kind, drawn by seed; None takes all 1,033, 5,815 and 164."""
    per_document: PositiveInt = 20
    """The maximum number of training holes in one document of the corpus."""
    samples: PositiveInt = 1
    """The number of samples for each hole."""
    ks: tuple[PositiveInt, ...] = (1,)
    """The k of each pass@k, none above `samples`; the first is the headline."""
    limits: Limits = Field(default_factory=Limits)
    """The resource limits of one program."""
    workers: PositiveInt = 2
    """The number of programs that run in parallel."""

    @field_validator("holes")
    @classmethod
    def _some(cls, value: tuple[HoleKind, ...]) -> tuple[HoleKind, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError("must name each kind once, and at least one")
        return value

    @model_validator(mode="after")
    def _enough_samples(self) -> "HumanEvalInfillingConfig":
        if not self.ks or max(self.ks) > self.samples:
            raise ValueError(f"ks={self.ks} must name at least one k, none above samples={self.samples}")
        return self

    @model_validator(mode="after")
    def _holes_are_limited_by_kind(self) -> "HumanEvalInfillingConfig":
        if self.max_test is not None:
            raise ValueError("max_test does not limit holes: give per_kind=N")
        return self

    def build(self) -> "HumanEvalInfilling":
        """Build the task. Raise UserError if the settings do not fit together."""
        return HumanEvalInfilling(self)


class HumanEvalInfilling:
    """The WritingTask of a `HumanEvalInfillingConfig`."""

    reads_corpus = True

    def __init__(self, config: HumanEvalInfillingConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return [self.config.folder / FILE_NAMES[kind] for kind in self.config.holes]

    def load(self, source: Source) -> WritingData:
        """Load the holes, and training data from the corpus if there is one.

        Raise UserError if a file cannot be used, or programs cannot be sandboxed.
        """
        run_python("", Limits())  # fails before training, not after it, if there is no sandbox
        config = self.config
        test = [
            Pair(
                f"{one.problem.key}#{number}",
                one.problem.prompt,
                (one.problem.canonical_solution,),
                suffix=one.suffix,
                language="python",
            )
            for kind in config.holes
            for one in drawn(read_holes(config.folder, kind), config.per_kind, source.seed, kind)
            for number in range(config.samples)
        ]
        if source.prep is None:
            return WritingData(train=[], valid=[], test=test)
        train, valid, _ = derived_splits(source, config, "Python", self._pairs, "humaneval_infilling")
        return WritingData(train=train, valid=valid, test=test)

    def _pairs(self, text: str, generator: np.random.Generator) -> Iterator[Pair]:
        prose = prose_lines(text, "Python")
        for number in range(self.config.per_document):
            kind = self.config.holes[int(generator.integers(len(self.config.holes)))]
            hole = _hole(kind, text, generator, prose)
            if hole is not None:
                start, end = hole
                before, after = text[:start][-_BEFORE_CHARACTERS:], text[end:][:_AFTER_CHARACTERS]
                yield Pair(f"{number}-{kind}", before, (text[start:end],), suffix=after)

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return pass@k, exact match and edit similarity of all holes, then by kind; of a corpus' holes no pass@k.

        Raise UserError if the items are a mixture of both.
        """
        texts = [metric(references(items), written) for metric in (exact_match, edit_similarity)]
        known = self._known
        keys = [item.key.partition("#")[0] for item in items]
        if not any(key in known for key in keys):
            return texts
        if not all(key in known for key in keys):
            raise UserError(
                "humaneval_infilling: its items and those of a corpus cannot be evaluated together"
            )
        samples: dict[str, list[str]] = {}
        for key, text in zip(keys, written, strict=True):
            samples.setdefault(key, []).append(text + known[key].suffix)
        passed = measure_pass_at_k(
            [known[key].problem for key in samples],
            list(samples.values()),
            self.config.ks,
            self.config.limits,
            self.config.workers,
        )
        of_holes, of_items = ([known[key].kind for key in all_keys] for all_keys in (samples, keys))
        return [*passed, *texts] + [
            replace(one, name=f"{one.name}_{kind}", statistics_NS=one.statistics_NS[np.array(kinds) == kind])
            for kind in self.config.holes
            if 0 < of_items.count(kind) < len(items)
            for group, kinds in ((passed, of_holes), (texts, of_items))
            for one in group
        ]

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return the first metric of `evaluate`."""
        return self.evaluate(items, written)[0]

    @cached_property
    def _known(self) -> dict[str, HoleProblem]:
        return {
            one.problem.key: one for kind in self.config.holes for one in read_holes(self.config.folder, kind)
        }


def _hole(
    kind: HoleKind, text: str, generator: np.random.Generator, prose: frozenset[int]
) -> tuple[int, int] | None:
    """Return where a hole like those of the published file starts and ends; it is not blank."""
    most = 1 if kind == "single_line" else _MOST_LINES
    lines = whole_lines(text, generator, prose, 1, most)
    if lines is None or kind != "random_span":
        return lines
    first, end = lines
    one, other = sorted(generator.choice(end - first + 1, size=2, replace=False).tolist())
    span = (first + one, first + other)
    return span if text[slice(*span)].strip() else None
