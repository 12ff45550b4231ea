"""Clone detection: do two functions do the same? BigCloneBench's files or generated pairs, evaluated by F1 of "clone".

Generated pairs come from parallel files: lines i of both files are clones. Negatives are sampled from the nearest lines
by TF-IDF, so that shared words alone do not determine the label.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from finetune.formats.labelled import read_clone_pairs, read_codes
from finetune.formats.names import Names
from finetune.formats.pair_files import PairFiles, Split
from finetune.lexical import TfidfSearch
from finetune.metrics.classification import (
    accuracy,
    binary_f1,
    binary_precision,
    binary_recall,
)
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.labelling import Labelled, LabellingData, given_labels, label_shares, wanted_labels
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.ranking import Masking, with_both_sides
from finetune.tasks.splits import drawn, held_out
from pretrain.randomness import keyed_generator

_AT_ONCE = 200
TextPair = tuple[str, str]


class ClonePairsConfig(PairFiles, TaskConfigBase):
    """The settings of clone detection.

    By default, pairs are generated from CodeXGLUE's translation files; with `codes`, they are read from BigCloneBench's
    files of pairs by idx.
    """

    modality: ClassVar[ModalityName] = "label"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"codes"}

    kind: Literal["clone_pairs"] = "clone_pairs"
    train: str | None = "train.java-cs.txt.{side}"
    valid: str | None = "valid.java-cs.txt.{side}"
    test: str = "test.java-cs.txt.{side}"
    source: str = "java"
    target: str = "cs"
    codes: str | None = None
    """BigCloneBench's data.jsonl; `train`, `valid` and `test` then have lines IDX IDX LABEL."""
    names: Names = "kept"
    """Which names are masked. The names of the sides are used as their languages."""
    nearest: PositiveInt = 10
    """For generated pairs: the number of nearest wrong functions that a negative is sampled from."""

    def build(self) -> "ClonePairs":
        """Build the task. Raise UserError if the settings do not fit together."""
        return ClonePairs(self)


class ClonePairs:
    """The LabellingTask of a `ClonePairsConfig`."""

    reads_corpus = False
    labels: tuple[str, ...] = ("other", "clone")
    num_texts = 2
    chooses_threshold = True

    def __init__(self, config: ClonePairsConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        config = self.config
        if config.codes is None:
            return config.files()
        names = (config.codes, config.train, config.valid, config.test)
        return [config.folder / name for name in names if name is not None]

    def load(self, source: Source) -> LabellingData:
        """Load the data. Raise UserError if it cannot be used."""
        masking, seed = Masking(self.config.names), source.seed
        left_out: dict[str, float] = {}
        made = self.config.codes is None
        read = self._made(masking, seed, left_out) if made else self._given(masking, seed)
        train, valid, test = read["train"], read["valid"], read["test"]
        if self.config.valid is None:
            # The positive and the negative pair of a text stay in one split.
            train, valid = held_out(train, seed, group_of=lambda item: item.texts[0])
        facts = label_shares(test, self.labels, "test")
        known = {text for item in train for text in item.texts}
        facts["test_pairs_with_texts_in_train"] = sum(not known.isdisjoint(item.texts) for item in test)
        facts |= masking.unparsed | left_out
        return LabellingData(
            train,
            valid,
            test,
            facts,
            self.num_texts,
            len(self.labels),
            published=masking.published.changed(),
        )

    def evaluate(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """Return F1, precision and recall of "clone", and accuracy; with a threshold also F1 of the likelier label."""
        wanted, given = wanted_labels(items), given_labels(probability_NC, threshold)
        measured = [
            metric(wanted, given) for metric in (binary_f1, binary_precision, binary_recall, accuracy)
        ]
        if threshold is not None:
            likelier = given_labels(probability_NC, None)
            measured.append(replace(binary_f1(wanted, likelier), name="f1_untuned"))
        return measured

    def _given(self, masking: Masking, seed: int) -> dict[Split, list[Labelled]]:
        config = self.config
        assert config.codes is not None
        codes = read_codes(config.folder / config.codes)
        splits: dict[Split, list[Labelled]] = {"train": [], "valid": [], "test": []}
        for split in splits:
            name = config.file_name(split)
            if name is None:
                continue
            pairs = drawn(read_clone_pairs(config.folder / name, codes), config.most(split), seed, split)
            splits[split] = [
                Labelled(
                    f"{split}-{number}",
                    (
                        masking.text(codes[first], config.source, split),
                        masking.text(codes[second], config.target, split),
                    ),
                    label,
                )
                for number, (first, second, label) in enumerate(pairs, start=1)
            ]
        return splits

    def _made(self, masking: Masking, seed: int, left_out: dict[str, float]) -> dict[Split, list[Labelled]]:
        config = self.config
        splits: dict[Split, list[Labelled]] = {"train": [], "valid": [], "test": []}
        for split in splits:
            pairs = with_both_sides(config.read(split), split, left_out)
            pairs = drawn(pairs, config.most(split), seed, split)
            pairs = masking.pairs(pairs, (config.source, config.target), split)
            splits[split] = list(_with_negatives(pairs, config.nearest, seed, split))
        return splits


def _with_negatives(pairs: Sequence[TextPair], nearest: int, seed: int, split: str) -> Iterator[Labelled]:
    """Yield each pair, and a negative: its first text with a sample of the nearest texts that are not right for it."""
    if not pairs:
        return
    candidates = list(dict.fromkeys(found for _, found in pairs))
    right: dict[str, set[str]] = {}
    for query, found in pairs:
        right.setdefault(query, set()).add(found)
    index = TfidfSearch([*candidates, *right])
    generator = keyed_generator(seed, f"clone-negatives-{split}")
    for first in range(0, len(pairs), _AT_ONCE):
        part = pairs[first : first + _AT_ONCE]
        score_QC = index.scores([query for query, _ in part], candidates)
        for number, ((query, found), score_C) in enumerate(zip(part, score_QC, strict=True), start=first + 1):
            yield Labelled(f"{split}-{number}", (query, found), 1)
            best = np.argsort(-score_C, kind="stable")[: nearest + len(right[query])]
            wrong = [candidates[one] for one in best if candidates[one] not in right[query]][:nearest]
            if wrong:
                yield Labelled(f"{split}-{number}-other", (query, wrong[generator.integers(len(wrong))]), 0)
