"""Generation of code from a description, evaluated as CodeXGLUE's text-to-code (CONCODE).

Iyer et al., "Mapping Language to Code in Programmatic Context", 2018. The headline metric is BLEU: the exact match of a
small model is close to 0, too low for early stopping. The published test file has empty labels, so it cannot be
evaluated (`permcode predict` writes predictions for it). Without files, the items are a corpus' documented Python
functions: the body is generated from head and docstring. `finetune.tasks.humaneval` evaluates functional correctness.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, model_validator

from finetune.formats.pair_files import PairSource
from finetune.functions import documented_bodies
from finetune.languages import grammar_name
from finetune.metrics.bleu import codexglue_bleu
from finetune.metrics.exact import exact_match_tokens
from finetune.metrics.measured import Measured
from finetune.metrics.spacing import spaced, structured_python
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.derived import derived_splits
from finetune.tasks.writing import (
    evaluate_code,
    finish,
    load_pair_files,
    on_the_rest,
    references,
    with_codebleu,
)


class GenerationConfig(PairSource, TaskConfigBase):
    """The settings of generation.

    The default files of a folder are CodeXGLUE's. The test file is the development set, because its labels are public.
    """

    modality: ClassVar[ModalityName] = "write"

    kind: Literal["generation"] = "generation"
    train: str | None = "train.json"
    valid: str | None = None
    test: str = "dev.json"
    source: str = "nl"
    target: str = "code"
    language: str = "java"
    """The language of the code; must be Python without a folder."""
    max_lines: PositiveInt = 12
    """The maximum number of lines of a body from a corpus."""

    @model_validator(mode="after")
    def _python_of_a_corpus(self) -> "GenerationConfig":
        if self.folder is None and grammar_name(self.language) != "python":
            raise ValueError(
                f"without a folder with files, functions are taken from a corpus, and of these only Python's are: "
                f"language={self.language!r} needs a folder, or write language=python"
            )
        return self

    def build(self) -> "Generation":
        """Build the task. Raise UserError if the settings do not fit together."""
        return Generation(self)


class Generation:
    """The WritingTask of a `GenerationConfig`."""

    def __init__(self, config: GenerationConfig) -> None:
        self.config = config
        self.reads_corpus = config.folder is None
        self.language = grammar_name(config.language)

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return self.config.files()

    def load(self, source: Source) -> WritingData:
        """Load the pairs of the files or corpus. Raise UserError if they cannot be used, as with withheld labels."""
        if self.config.folder is not None:
            return load_pair_files(self.config, self.language, source.seed)
        train, valid, test = derived_splits(source, self.config, "Python", self._pairs, "generation")
        return finish(train, valid, test, self.config, {}, source.seed)

    def _pairs(self, text: str, generator: np.random.Generator) -> Iterator[Pair]:
        for number, (head, body) in enumerate(documented_bodies(text)):
            if body.count("\n") <= self.config.max_lines:
                yield Pair(str(number), head, (body,))

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return BLEU, exact match by tokens, and CodeBLEU; the first two again without leaked items."""
        metrics = (codexglue_bleu, exact_match_tokens)
        if self.config.folder is not None:
            return evaluate_code(metrics, items, written, self.language)
        # Published texts have spaces between their tokens, so spaces are added to the bodies of a corpus. CodeBLEU
        # parses the code and needs its layout.
        structured = _rewritten(items, written, _structured)
        laid_out = _rewritten(items, written, _laid_out)
        return [
            *(metric(references(structured[0]), structured[1]) for metric in metrics),
            *with_codebleu(*laid_out, self.language),
            *on_the_rest(metrics, *structured),
        ]

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return BLEU."""
        if self.config.folder is None:
            items, written = _rewritten(items, written, _structured)
        return codexglue_bleu(references(items), written)


def _rewritten(
    items: Sequence[Pair], written: Sequence[str], rewrite: Callable[[str], str]
) -> tuple[list[Pair], list[str]]:
    plain = [replace(item, references=tuple(map(rewrite, item.references))) for item in items]
    return plain, list(map(rewrite, written))


def _laid_out(body: str) -> str:
    return spaced(textwrap.dedent(body), "python")


def _structured(body: str) -> str:
    return structured_python(textwrap.dedent(body))
