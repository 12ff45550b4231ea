"""Task splits made from a corpus: train and valid from its task-train documents, test from its test documents.

Train and test share no package. Train and valid share no document, except in corpora of fewer than ten documents, whose
valid items come from the documents of train.
"""

from collections.abc import Callable, Iterable

import numpy as np

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from finetune.formats.pair_files import PairSource, Split
from finetune.held_out import SPLIT_TO_TEST_ON, SPLIT_TO_TRAIN_ON, held_out_documents
from finetune.modalities.base import Source
from finetune.modalities.writing import Pair
from finetune.tasks.writing import hold_out
from pretrain.randomness import keyed_generator

PairsOf = Callable[[str, np.random.Generator], Iterable[Pair]]
"""Makes the pairs of a document from its text.

Keys must be unique within the document, and all random choices must use the generator.
"""
_VALID_EVERY = 10
_MOST: dict[Split, int] = {"train": 20_000, "valid": 500, "test": 1_000}


def derived_splits(
    source: Source, files: PairSource, language: str, make: PairsOf, name: str
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Return (train, valid, test) of at most max_train, max_valid and max_test items, by default 20,000, 500 and 1,000.

    A pure function of corpus, config and seed. Documents are read round-robin over packages, so that any prefix covers
    all packages. Raise UserError if there is no corpus, or it yields no item to train on or to test on.
    """
    if source.prep is None:
        raise UserError(
            f"{name}: there are no files (folder is not set) and no corpus to make data from: give one"
        )
    corpus = open_prepared(source.prep)
    most = {split: files.most(split) or _MOST[split] for split in _MOST}
    learnt: dict[Split, list[Pair]] = {"train": [], "valid": []}
    full = {"train": False, "valid": False}
    for number, pairs in enumerate(
        _by_document(corpus, SPLIT_TO_TRAIN_ON, source.seed, language, make, name)
    ):
        split: Split = "valid" if number % _VALID_EVERY == _VALID_EVERY - 1 else "train"
        learnt[split] += pairs
        full[split] = len(learnt[split]) >= most[split]
        if all(full.values()):
            break
    train, valid = learnt["train"], learnt["valid"][: most["valid"]]
    if train and not valid:
        # There are too few documents to hold one out, so hold out single items.
        train, valid = hold_out(train, source.seed)
    test: list[Pair] = []
    for pairs in _by_document(corpus, SPLIT_TO_TEST_ON, source.seed, language, make, name):
        test += pairs
        if len(test) >= most["test"]:
            break
    train = train[: most["train"]]
    if not train or not test:
        lacking = SPLIT_TO_TRAIN_ON if not train else SPLIT_TO_TEST_ON
        raise UserError(
            f"{corpus.location}: its {lacking} split gives no item for {name}: use a larger corpus"
        )
    return train, valid, test[: most["test"]]


def _by_document(
    corpus: PreparedCorpus, split: str, seed: int, language: str, make: PairsOf, name: str
) -> Iterable[list[Pair]]:
    for number, document in enumerate(held_out_documents(corpus, split, seed, language)):
        generator = keyed_generator(seed, f"derived-{name}-{split}", number)
        yield [
            Pair(
                f"{document.name}:{pair.key}",
                pair.source,
                pair.references,
                pair.suffix,
                language or pair.language,
            )
            for pair in make(document.text, generator)
        ]
