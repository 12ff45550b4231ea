"""Programs find those that solve the same problem, as POJ-104 is judged: MAP@R, splits by problem and never by pair.

With `query_language` and `candidate_language` the search goes across languages. Programs come from files: clones made
by changing one program keep its words, and are found by them.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cluster.config import LocalPath
from cluster.errors import UserError
from finetune.formats.names import Names
from finetune.formats.retrieval import LabelledCode, read_labelled_code
from finetune.languages import grammar_name
from finetune.metrics.measured import Measured
from finetune.metrics.ranking import map_at_r, mrr, recall_at
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.ranking import Match, Pool, RankingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.ranking import Masking
from pretrain.randomness import keyed_generator

_SHARES = (0.6, 0.2)
"""Of the problems: train, valid; the others are test."""


class CloneRetrievalConfig(TaskConfigBase):
    """Files of records {label, code}, optionally with a language. One file alone is split by problem, 60/20/20."""

    modality: ClassVar[ModalityName] = "rank"

    kind: Literal["clone_retrieval"] = "clone_retrieval"
    folder: LocalPath
    """Holds the files."""
    train: str | None
    """File to learn from, or the only one; None where there is nothing to learn from."""
    valid: str | None = None
    """Given exactly where `train` and `test` are."""
    test: str | None = None
    label: str = "label"
    """Field: which problem a program solves."""
    code: str = "code"
    """Field."""
    language: str | None = None
    """Field with the program's language; None where there is none."""
    query_language: str | None = None
    """Only programs in it search; None for all. Needs `language`, as does `candidate_language`."""
    candidate_language: str | None = None
    """Only programs in it are searched; None for all."""
    code_language: str | None = None
    """Of all programs, where records do not tell: what names are masked by."""
    names: Names = "kept"
    """Which names are masked."""

    def build(self) -> "CloneRetrieval":
        """The task. Raises UserError for settings that do not fit together."""
        return CloneRetrieval(self)


_TRAIN_ALONE, _ALL, _TEST_ALONE = (True, False, False), (True, True, True), (False, False, True)


class CloneRetrieval:
    """The RankingTask of a `CloneRetrievalConfig`."""

    reads_corpus = False

    def __init__(self, config: CloneRetrievalConfig) -> None:
        named = tuple(name is not None for name in (config.train, config.valid, config.test))
        if named not in (_TRAIN_ALONE, _ALL, _TEST_ALONE):
            raise UserError(
                "clone retrieval needs train alone, train, valid and test, or test alone to evaluate: name these"
            )
        if config.language is None and (config.query_language or config.candidate_language):
            raise UserError("query_language and candidate_language need language: the field that has it")
        if config.names != "kept" and not (config.language or config.code_language):
            raise UserError("names can be masked only in a known language: give language or code_language")
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        names = (self.config.train, self.config.valid, self.config.test)
        return [self.config.folder / name for name in names if name is not None]

    def load(self, source: Source) -> RankingData:
        """Raises UserError for files that cannot be used, and for splits in which nobody has anything to find."""
        splits = self._splits(source.seed)
        labels, codes = ({getattr(one, name) for one in splits[0]} for name in ("label", "code"))
        facts: dict[str, float] = {
            "test_labels_in_train": len({one.label for one in splits[2]} & labels),
            "test_codes_in_train": sum(one.code in codes for one in splits[2]),
        }
        masking = Masking(self.config.names)
        train, valid, test = (
            self._masked(part, masking, name)
            for part, name in zip(splits, ("train", "valid", "test"), strict=True)
        )
        valid_pool, test_pool = self._pool(valid, "valid", facts), self._pool(test, "test", facts)
        matches = self._matches(train, source.seed)
        return RankingData(
            matches, valid_pool, test_pool, facts | masking.unparsed, published=masking.published.changed()
        )

    def evaluate(self, pool: Pool, score_QC: NDArray[np.float64]) -> list[Measured]:
        """MAP@R, MRR, recall among the first 1 and 10."""
        recalls = [recall_at(pool, score_QC, k) for k in (1, 10)]
        return [map_at_r(pool, score_QC), mrr(pool, score_QC), *recalls]

    def _splits(self, seed: int) -> list[list[LabelledCode]]:
        config = self.config
        parts = [
            read_labelled_code(path, config.label, config.code, config.language) for path in self.files()
        ]
        if config.train is None:
            parts = [[], parts[0], parts[0]]
        elif len(parts) == 1:
            parts = _split_by_problem(parts[0], seed)
        return parts

    def _masked(self, items: Sequence[LabelledCode], masking: Masking, split: str) -> list[LabelledCode]:
        language = self.config.code_language or ""
        return [
            LabelledCode(masking.text(one.code, one.language or language, split), one.label, one.language)
            for one in items
        ]

    def _matches(self, items: Sequence[LabelledCode], seed: int) -> list[Match]:
        """Every program that may search, with another of its problem that may be found, drawn by seed."""
        by_label = defaultdict[str, list[LabelledCode]](list)
        for one in self._in(items, self.config.candidate_language):
            by_label[one.label].append(one)
        generator, matches = keyed_generator(seed, "clones-matched"), []
        for one in self._in(items, self.config.query_language):
            others = [other for other in by_label[one.label] if other is not one]
            if others:
                found = others[int(generator.integers(len(others)))]
                matches.append(Match(one.code, found.code, one.label))
        return matches

    def _pool(self, items: Sequence[LabelledCode], name: str, facts: dict[str, float]) -> Pool:
        candidates = self._in(items, self.config.candidate_language)
        number_of = {id(one): number for number, one in enumerate(candidates)}
        by_label = defaultdict[str, list[int]](list)
        for number, one in enumerate(candidates):
            by_label[one.label].append(number)
        keys, queries, relevant, excluded = [], [], [], []
        searching = self._in(items, self.config.query_language)
        for number, one in enumerate(searching, start=1):
            own = number_of.get(id(one))
            wanted = tuple(other for other in by_label[one.label] if other != own)
            if wanted:
                keys.append(f"{name}-{number}")
                queries.append(one.code)
                relevant.append(wanted)
                excluded.append(own)
        facts[f"{name}_queries_with_nothing_to_find"] = len(searching) - len(queries)
        if not queries:
            raise UserError(
                f"{self.config.folder}: no program of the {name} split has another of its label to find: "
                "are labels, languages and splits as they should be?"
            )
        return Pool(keys, queries, [one.code for one in candidates], relevant, excluded)

    def _in(self, items: Sequence[LabelledCode], language: str | None) -> list[LabelledCode]:
        if language is None:
            return list(items)
        wanted = grammar_name(language)
        return [one for one in items if one.language is not None and grammar_name(one.language) == wanted]


def _split_by_problem(items: Sequence[LabelledCode], seed: int) -> list[list[LabelledCode]]:
    labels = sorted({one.label for one in items})
    order = keyed_generator(seed, "clones-split").permutation(len(labels))
    ends = np.cumsum([round(share * len(labels)) for share in _SHARES])
    part_of = {
        labels[index]: int(np.searchsorted(ends, place, side="right")) for place, index in enumerate(order)
    }
    return [[one for one in items if part_of[one.label] == part] for part in range(3)]
