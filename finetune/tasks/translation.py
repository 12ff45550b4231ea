"""Translation of functions from one language to another, evaluated as CodeXGLUE's code-to-code-trans.

Lu et al., "CodeXGLUE", 2021. Some of its test lines occur verbatim in train, so BLEU and exact match are reported again
without these. The headline metric is BLEU, by which published tables are sorted.
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
    """The settings of translation.

    The defaults are CodeXGLUE's files, Java to C#; set `source: cs` and `target: java` for the other direction.
    """

    modality: ClassVar[ModalityName] = "write"

    kind: Literal["translation"] = "translation"
    train: str | None = "train.java-cs.txt.{side}"
    valid: str | None = "valid.java-cs.txt.{side}"
    test: str = "test.java-cs.txt.{side}"
    source: str = "java"
    target: str = "cs"
    language: str | None = None
    """The target side's language, for CodeBLEU; None uses the side's name. CodeBLEU is left out if it is unknown."""

    def build(self) -> "Translation":
        """Build the task. Raise UserError if the settings do not fit together."""
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
        """Load the pairs of the files. Raise UserError if they cannot be used."""
        return load_pair_files(self.config, self.language, source.seed)

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return BLEU, exact match and CodeBLEU; BLEU and exact match again without leaked items."""
        return evaluate_code((codexglue_bleu, exact_match), items, written, self.language)

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return BLEU."""
        return codexglue_bleu(references(items), written)
