"""Summarisation of functions, evaluated as CodeXGLUE's code-to-text: mean smoothed sentence BLEU, and ROUGE-L.

Items come from files of {code_tokens, docstring_tokens} or, without a folder, from a corpus' documented Python
functions: the docstring's first paragraph is generated from the function without its docstring.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from finetune.formats.pair_files import PairSource
from finetune.functions import distinct_pairs, documented_functions
from finetune.metrics.bleu import summary_bleu
from finetune.metrics.measured import Measured
from finetune.metrics.rouge import rouge_l
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.derived import derived_splits
from finetune.tasks.writing import finish, load_pair_files, on_the_rest, references


class SummarisationConfig(PairSource, TaskConfigBase):
    """The settings of summarisation. The default file names of a folder are CodeXGLUE's."""

    modality: ClassVar[ModalityName] = "write"

    kind: Literal["summarisation"] = "summarisation"
    train: str | None = "train.jsonl"
    valid: str | None = "valid.jsonl"
    test: str = "test.jsonl"
    source: str = "code_tokens"
    target: str = "docstring_tokens"

    def build(self) -> "Summarisation":
        """Build the task. Raise UserError if the settings do not fit together."""
        return Summarisation(self)


class Summarisation:
    """The WritingTask of a `SummarisationConfig`."""

    reads_corpus = True

    def __init__(self, config: SummarisationConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return self.config.files()

    def load(self, source: Source) -> WritingData:
        """Load the pairs of the files or of the corpus. Raise UserError if they cannot be used."""
        if self.config.folder is not None:
            return load_pair_files(self.config, None, source.seed)
        train, valid, test = derived_splits(source, self.config, "Python", self._pairs, "summarisation")
        return finish(train, valid, test, self.config, {}, source.seed)

    def _pairs(self, text: str, generator: np.random.Generator) -> Iterator[Pair]:
        for number, pair in enumerate(distinct_pairs(documented_functions(text))):
            yield Pair(str(number), pair.code, (pair.query,))

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return sentence BLEU and ROUGE-L; both again without leaked items."""
        wanted = references(items)
        both = (summary_bleu, rouge_l)
        return [metric(wanted, written) for metric in both] + on_the_rest(both, items, written)

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return sentence BLEU."""
        return summary_bleu(references(items), written)
