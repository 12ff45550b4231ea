"""Code-to-code search: find the equivalent code in another language, in parallel files such as CodeXGLUE's translation.

Parallel files are mostly two versions by one author, with the same names: BM25 alone nearly solves Java to C#. So names
can be masked, and every result should be compared with that of a lexical ranker.
"""

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.formats.names import Names
from finetune.formats.pair_files import PairFiles, Split
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.ranking import Pool, RankingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.ranking import Masking, leaks, matches_of_pairs, pool_of_pairs, search_metrics
from pretrain.randomness import keyed_generator

_VALID_SHARE = 20
_MAX_VALID = 500
TextPair = tuple[str, str]


class CodeSearchConfig(PairFiles, TaskConfigBase):
    """The settings of code search. By default, Java functions of CodeXGLUE's translation files search C# ones."""

    modality: ClassVar[ModalityName] = "rank"

    kind: Literal["code_search"] = "code_search"
    train: str | None = "train.java-cs.txt.{side}"
    valid: str | None = "valid.java-cs.txt.{side}"
    test: str = "test.java-cs.txt.{side}"
    source: str = "java"
    target: str = "cs"
    query_language: str | None = None
    """The language of the queries; None uses the name of the source side."""
    candidate_language: str | None = None
    """The language of the candidates; None uses the name of the target side."""
    names: Names = "kept"
    """Which names are masked, on both sides and in all splits."""

    def build(self) -> "CodeSearch":
        """Build the task. Raise UserError if the settings do not fit together."""
        return CodeSearch(self)


class CodeSearch:
    """The RankingTask of a `CodeSearchConfig`."""

    reads_corpus = False

    def __init__(self, config: CodeSearchConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return self.config.files()

    def load(self, source: Source) -> RankingData:
        """Load the pairs of the files; pairs with an empty side are skipped and counted.

        Without training data nothing is chosen, so the test split is used for validation. Raise UserError if files
        cannot be used.
        """
        facts: dict[str, float] = {}
        train, valid, test = (self._read(split, facts, source.seed) for split in ("train", "valid", "test"))
        if not valid and self.config.valid is None:
            order = keyed_generator(source.seed, "code-search-hold-out").permutation(len(train))
            num_valid = max(1, min(_MAX_VALID, len(train) // _VALID_SHARE))
            train, valid = [train[i] for i in order[num_valid:]], [train[i] for i in order[:num_valid]]
        if train and not valid:
            raise UserError(
                f"{self.config.paths('valid')[0]} has no pair with a text on both sides to choose by: "
                "give another file, or valid=null to take some of train"
            )
        if train:
            facts |= leaks(train, test)
        masking = Masking(self.config.names)
        test_pool = pool_of_pairs(self._masked(masking, test, "test"), "test")
        facts["test_candidates"] = len(test_pool.candidates)
        return RankingData(
            matches_of_pairs(self._masked(masking, train, "train")),
            pool_of_pairs(self._masked(masking, valid or test, "valid"), "valid"),
            test_pool,
            facts | masking.unparsed,
            published=masking.published.changed(),
        )

    def evaluate(self, pool: Pool, score_QC: NDArray[np.float64]) -> list[Measured]:
        """Return MRR, and recall at 1, 5 and 10."""
        return search_metrics(pool, score_QC)

    def _read(self, split: Split, facts: dict[str, float], seed: int) -> list[TextPair]:
        pairs = self.config.read(split)
        usable = [pair for pair in pairs if pair[0] and pair[1]]
        facts[f"{split}_left_out_empty"] = len(pairs) - len(usable)
        most = self.config.most(split)
        if most is None or most >= len(usable):
            return usable
        drawn = keyed_generator(seed, f"task-{split}").permutation(len(usable))[:most]
        return [usable[index] for index in np.sort(drawn)]

    def _masked(self, masking: Masking, pairs: list[TextPair], split: str) -> list[TextPair]:
        config = self.config
        languages = (config.query_language or config.source, config.candidate_language or config.target)
        return masking.pairs(pairs, languages, split)
