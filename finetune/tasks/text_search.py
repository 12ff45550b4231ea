"""Text-to-code search: CoSQA's web queries, files of (query, code), or a corpus's own documented functions.

CoSQA's functions (Huang et al. 2021) contain their docstrings, which often answer the query alone: report results both
with `docstrings` on and off. Published results rank ties by their average; here ties count against the system.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from cluster.config import LocalPath
from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from finetune.formats.records import read_text_pairs
from finetune.formats.retrieval import read_base, read_queries, without_docstrings
from finetune.functions import SearchPair, distinct_pairs, documented_functions
from finetune.held_out import SPLIT_TO_TEST_ON, held_out_documents
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.ranking import Pool, RankingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.published import Published
from finetune.tasks.ranking import (
    leaks,
    matches_of_pairs,
    pool_of_pairs,
    search_metrics,
    with_both_sides,
)
from pretrain.randomness import keyed_generator

TextPair = tuple[str, str]
_VALID_SHARE = 20
_MAX_VALID = 500


class TextSearchConfig(TaskConfigBase):
    """The settings of text search.

    Without `test`, the test items are documented Python functions of the corpus' held-out repositories.
    """

    modality: ClassVar[ModalityName] = "rank"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"base", "train_splits"}

    kind: Literal["text_search"] = "text_search"
    folder: LocalPath | None = None
    """The folder of the files."""
    train: str | None = None
    """A file of records of query and code; None uses the corpus's documented functions, if there is a corpus."""
    valid: str | None = None
    """The validation file; None holds out one pair in twenty of train, at most 500."""
    test: str | None = None
    base: str | None = None
    """CoSQA's base of functions; `valid` and `test` then are its files of queries, and all functions are candidates."""
    query: str = "query"
    """The field of records with the query."""
    code: str = "code"
    """The field of records with the function."""
    docstrings: bool = True
    """Whether the functions of files keep their docstrings. Functions of a corpus never do."""
    train_splits: tuple[Literal["train", "validation"], ...] = Field(default=("validation",), min_length=1)
    """The splits of the corpus that training pairs come from."""
    max_train: PositiveInt = 20_000
    """The maximum number of training pairs."""
    max_test: PositiveInt = 1_000
    """The maximum number of test pairs from a corpus; files are read whole."""

    @model_validator(mode="after")
    def _files_stand_in_a_folder(self) -> Self:
        if self.folder is None and (self.train or self.valid or self.test or self.base):
            raise ValueError("folder must be given with the files train, valid, test and base")
        if self.folder is not None and not (self.train or self.test):
            raise ValueError("folder holds files: name test, train or both")
        if self.test is None and (self.valid or self.base):
            raise ValueError("test must be given with valid and base")
        return self

    def build(self) -> "TextSearch":
        """Build the task. Raise UserError if the settings do not fit together."""
        return TextSearch(self)


class TextSearch:
    """The RankingTask of a `TextSearchConfig`."""

    reads_corpus = True

    def __init__(self, config: TextSearchConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        names = (self.config.train, self.config.valid, self.config.test, self.config.base)
        return [self._path(name) for name in names if name is not None]

    def load(self, source: Source) -> RankingData:
        """Load the data; without training and validation data, the test split is used for validation.

        Raise UserError if files cannot be used, or neither files nor a corpus are given.
        """
        config, facts, published = self.config, dict[str, float](), Published()
        corpus = open_prepared(source.prep) if source.prep is not None else None
        test_pairs, test_pool = self._test(corpus, source.seed, facts, published)
        train = self._train(corpus, source.seed, test_pairs, facts)
        valid: Pool | None = None
        if config.valid is not None:
            valid = self._pool_of_file(config.valid, "valid", facts, Published())
        elif train:
            num_valid = max(1, min(_MAX_VALID, len(train) // _VALID_SHARE))
            valid = pool_of_pairs(train[:num_valid], "valid")
            train = train[num_valid:]
        facts |= leaks(_as_functions(train), _as_functions(test_pairs)) if train else {}
        return RankingData(
            matches_of_pairs(train), valid or test_pool, test_pool, facts, published=published.changed()
        )

    def evaluate(self, pool: Pool, score_QC: NDArray[np.float64]) -> list[Measured]:
        """Return MRR, and recall at 1, 5 and 10."""
        return search_metrics(pool, score_QC)

    def _test(
        self, corpus: PreparedCorpus | None, seed: int, facts: dict[str, float], published: Published
    ) -> tuple[list[TextPair], Pool]:
        config = self.config
        if config.test is not None:
            pool = self._pool_of_file(config.test, "test", facts, published)
            pairs = [
                (query, pool.candidates[number])
                for query, numbers in zip(pool.queries, pool.relevant, strict=True)
                for number in numbers
            ]
            return pairs, pool
        if corpus is None:
            raise UserError(
                "text search needs a test file or a prepared corpus: give test=FILE or a prep folder"
            )
        pairs = self._of_corpus(corpus, (SPLIT_TO_TEST_ON,), seed, config.max_test, [])
        return pairs, pool_of_pairs(pairs, "test")

    def _train(
        self, corpus: PreparedCorpus | None, seed: int, test: Sequence[TextPair], facts: dict[str, float]
    ) -> list[TextPair]:
        config = self.config
        if config.train is not None:
            pairs = self._read(config.train, "train", facts, Published())
            order = keyed_generator(seed, "text-search-train").permutation(len(pairs))
            return [pairs[index] for index in order[: config.max_train]]
        if corpus is None:
            return []
        pairs = self._of_corpus(corpus, config.train_splits, seed, config.max_train, test)
        wanted = {function for _, function in _as_functions(test)}
        kept = [
            pair
            for pair, (_, function) in zip(pairs, _as_functions(pairs), strict=True)
            if function not in wanted
        ]
        facts["train_functions_left_out_for_test"] = len(pairs) - len(kept)
        return kept

    def _pool_of_file(self, name: str, split: str, facts: dict[str, float], published: Published) -> Pool:
        config = self.config
        if config.base is None:
            return pool_of_pairs(self._read(name, split, facts, published), split)
        codes = read_base(self._path(config.base))
        queries = read_queries(self._path(name), len(codes))
        if not config.docstrings:
            codes = [published.note(without_docstrings(code), code) for code in codes]
        return Pool(
            [query.key for query in queries],
            [query.text for query in queries],
            codes,
            [(query.number,) for query in queries],
        )

    def _read(self, name: str, split: str, facts: dict[str, float], published: Published) -> list[TextPair]:
        """Read the pairs of a file; pairs without a query or code are skipped and counted."""
        read = read_text_pairs(self._path(name), self.config.query, self.config.code)
        pairs = with_both_sides(read, split, facts)
        if self.config.docstrings:
            return pairs
        return [(query, published.note(without_docstrings(code), code)) for query, code in pairs]

    def _of_corpus(
        self, corpus: PreparedCorpus, splits: Sequence[str], seed: int, most: int, seen: Sequence[TextPair]
    ) -> list[TextPair]:
        """Return distinct documented functions. Documents are read round-robin over repositories, until enough."""
        known = [SearchPair(*pair) for pair in seen]
        usable: list[SearchPair] = []
        for split in splits:
            found: list[SearchPair] = []
            for document in held_out_documents(corpus, split, seed):
                found += documented_functions(document.text)
                if len(found) >= 2 * most:
                    break
            usable += distinct_pairs(found, seen=[*known, *usable])
        if not usable:
            raise UserError(
                f"{corpus.folder}: the {', '.join(splits)} split has no documented Python functions to search: "
                "use a larger corpus or give that split a larger share"
            )
        order = keyed_generator(seed, f"text-search-{'-'.join(splits)}").permutation(len(usable))
        return [(usable[index].query, usable[index].code) for index in order[:most]]

    def _path(self, name: str) -> Path:
        assert self.config.folder is not None
        return self.config.folder / name


def _as_functions(pairs: Sequence[TextPair]) -> list[TextPair]:
    """Return the pairs with functions without docstring and white space, because files and corpora differ in layout."""
    return [(query, "".join(without_docstrings(code).split())) for query, code in pairs]
