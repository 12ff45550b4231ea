"""Generation of code from a description, judged as CodeXGLUE's text-to-code (CONCODE) is.

Iyer et al., "Mapping Language to Code in Programmatic Context", 2018. The headline is BLEU: exact match of a small
model is close to nothing, and cannot tell when to stop. The published test file has empty labels; nothing can be judged
by it (`permcode predict` writes predictions for it). Functional correctness is `finetune.tasks.humaneval`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from finetune.examples import Pair, WritingData
from finetune.formats.languages import grammar_name
from finetune.formats.pair_files import PairFiles
from finetune.metrics.bleu import codexglue_bleu
from finetune.metrics.exact import exact_match_tokens
from finetune.metrics.measured import Measured
from finetune.tasks.base import Source
from finetune.tasks.writing import judge_code, load_pair_files, references


class GenerationConfig(PairFiles):
    """By default CodeXGLUE's files, judged by the development set, whose labels are public."""

    kind: Literal["generation"] = "generation"
    train: str | None = "train.json"
    valid: str | None = None
    test: str = "dev.json"
    source: str = "nl"
    target: str = "code"
    language: str = "java"
    """Of the code."""


class Generation:
    """The WritingTask of a `GenerationConfig`."""

    reads_corpus = False

    def __init__(self, config: GenerationConfig) -> None:
        self.config = config
        self.language = grammar_name(config.language)

    def files(self) -> list[Path]:
        """What is read, for fingerprints."""
        return self.config.files()

    def load(self, source: Source) -> WritingData:
        """The pairs of the files. Raises UserError for data that cannot be used, withheld labels included."""
        return load_pair_files(self.config, self.language, source.seed)

    def judge(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """BLEU, exact match by tokens, CodeBLEU; the first two again without leaked items."""
        return judge_code((codexglue_bleu, exact_match_tokens), items, written, self.language)

    def quick(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """BLEU."""
        return codexglue_bleu(references(items), written)
