"""Repair: rewrite a buggy function without its bug. Evaluated as CodeXGLUE's code-refinement.

The headline metric is exact match: copying the source scores BLEU 78.06 on the small set, above every published model.
Training bugs can be generated in functions of a corpus or a file (`finetune.bugs`), because the published training
split is large and not everyone has it.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import PositiveInt

from cluster.config import Config, LocalPath
from cluster.errors import UserError
from data_prep.finished.prepared import open_prepared
from finetune.bugs.abstraction import idioms_of
from finetune.bugs.corpus import functions_in_file, functions_of_corpus, generated_bugs
from finetune.formats.pair_files import PairFiles
from finetune.held_out import SPLIT_TO_TRAIN_ON
from finetune.languages import grammar_name
from finetune.metrics.bleu import codexglue_bleu
from finetune.metrics.exact import exact_match
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.writing import evaluate_code, finish, hold_out, load_pair_files, references


class BugsConfig(Config):
    """The settings of the bugs that are generated for training."""

    pairs: PositiveInt = 20_000
    """The maximum number of pairs."""
    per_function: PositiveInt = 1
    """The maximum number of different bugs in one function."""
    functions: LocalPath | None = None
    """A file with one function per line; None uses the functions of the corpus' task-train documents."""
    abstract: bool = False
    """Whether to abstract the functions as the refinement set does, keeping its frequent names (Java only)."""


class RepairConfig(PairFiles, TaskConfigBase):
    """The settings of repair. The default file names are those of CodeXGLUE's code-refinement."""

    modality: ClassVar[ModalityName] = "write"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"bugs"}

    kind: Literal["repair"] = "repair"
    train: str | None = "train.buggy-fixed.{side}"
    valid: str | None = "valid.buggy-fixed.{side}"
    test: str = "test.buggy-fixed.{side}"
    source: str = "buggy"
    target: str = "fixed"
    language: str = "java"
    bugs: BugsConfig | None = None
    """The bugs to generate in addition to the training file; with `train: null`, instead of it."""

    def build(self) -> "Repair":
        """Build the task. Raise UserError if the settings do not fit together."""
        return Repair(self)


class Repair:
    """The WritingTask of a `RepairConfig`."""

    reads_corpus = True

    def __init__(self, config: RepairConfig) -> None:
        self.config = config
        self.language = grammar_name(config.language)

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        bugs = self.config.bugs
        return self.config.files() + (
            [bugs.functions] if bugs is not None and bugs.functions is not None else []
        )

    def load(self, source: Source) -> WritingData:
        """Load the pairs of the files, and generate bugs. Raise UserError if the data cannot be used."""
        if self.config.bugs is None:
            return load_pair_files(self.config, self.language, source.seed)
        # The limits apply to generated and read items together, so the files are read without limits.
        every = {"max_train": None, "max_valid": None, "max_test": None}
        read = load_pair_files(self.config.model_copy(update=every), self.language, source.seed)
        made, facts = self._made(self.config.bugs, read, source)
        train, valid = [*read.train, *made], list(read.valid)
        if not valid:
            train, valid = hold_out(train, source.seed)
        return finish(train, valid, read.test, self.config, {**read.facts, **facts}, source.seed)

    def _made(
        self, config: BugsConfig, read: WritingData, source: Source
    ) -> tuple[list[Pair], dict[str, float]]:
        held_out = [*read.valid, *read.test]
        idioms = idioms_of(pair.source for pair in read.valid) if config.abstract else None
        made = generated_bugs(
            self._functions(config, source),
            self.language,
            source.seed,
            most=config.pairs,
            each=config.per_function,
            idioms=idioms,
            # Validation and test items must not be in train, in either form.
            without=chain.from_iterable((pair.source, *pair.references) for pair in held_out),
        )
        facts = {f"made_{kind}": float(count) for kind, count in sorted(made.num_by_kind.items())}
        return made.pairs, facts

    def _functions(self, config: BugsConfig, source: Source) -> Iterable[str]:
        if config.functions is not None:
            return functions_in_file(config.functions)
        if source.prep is None:
            raise UserError(
                "repair: bugs are to be made but there is no function to make them in: "
                "give a corpus, or a file with one function per line as task.bugs.functions"
            )
        return functions_of_corpus(open_prepared(source.prep), SPLIT_TO_TRAIN_ON, self.language, source.seed)

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return exact match, BLEU and CodeBLEU; the first two again without leaked items."""
        return evaluate_code((exact_match, codexglue_bleu), items, written, self.language)

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return exact match."""
        return exact_match(references(items), written)
