"""Translation of functions from one language to another, judged as CodeXGLUE's code-to-code-trans is.

Lu et al., "CodeXGLUE", 2021. Some of its test lines stand verbatim in train, so every metric is reported again without
these. The headline is BLEU, which published tables are sorted by.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from finetune.formats.pair_files import PairFiles
from finetune.languages import grammar_name
from finetune.metrics.bleu import codexglue_bleu
from finetune.metrics.exact import exact_match
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.writing import evaluate_code, load_pair_files, references


class TranslationConfig(PairFiles, TaskConfigBase):
    """By default CodeXGLUE's files, Java to C#; the other direction is `source: cs`, `target: java`."""

    modality: ClassVar[ModalityName] = "write"

    kind: Literal["translation"] = "translation"
    train: str | None = "train.java-cs.txt.{side}"
    valid: str | None = "valid.java-cs.txt.{side}"
    test: str = "test.java-cs.txt.{side}"
    source: str = "java"
    target: str = "cs"
    language: str | None = None
    """Of the target side, for CodeBLEU; None takes the side's name. Without a known one there is no CodeBLEU."""

    def build(self) -> "Translation":
        """The task. Raises UserError for settings that do not fit together."""
        return Translation(self)


class Translation:
    """The WritingTask of a `TranslationConfig`."""

    reads_corpus = False

    def __init__(self, config: TranslationConfig) -> None:
        self.config = config
        self.language = grammar_name(config.language or config.target)

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return self.config.files()

    def load(self, source: Source) -> WritingData:
        """The pairs of the files. Raises UserError for data that cannot be used."""
        return load_pair_files(self.config, self.language, source.seed)

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """BLEU, exact match, CodeBLEU; BLEU and exact match again without leaked items."""
        return evaluate_code((codexglue_bleu, exact_match), items, written, self.language)

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """BLEU."""
        return codexglue_bleu(references(items), written)
