"""Documents of the held-out packages: a task trains on `validation` and is tested on `test`."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cluster.errors import UserError
from data_prep.finished.prepared import Block, PreparedCorpus
from finetune.languages import grammar_name
from pretrain.randomness import keyed_generator

SPLIT_TO_TRAIN_ON = "validation"
"""The split of the corpus that tasks train on: the base model has not been trained on it."""
SPLIT_TO_TEST_ON = "test"
MOST_TOKENS = 1 << 28
"""Limit on the tokens read from a split: a gigabyte of code, more than any task trains on."""


@dataclass(frozen=True)
class HeldOutDocument:
    """One file: `tokens` are those of `text`, without the end-of-document token."""

    name: str
    text: str
    tokens: npt.NDArray[np.integer]


def held_out_documents(
    corpus: PreparedCorpus, split: str, seed: int, language: str = "Python"
) -> Iterator[HeldOutDocument]:
    """Yield the documents of a split in one language, round-robin over packages, so that any prefix covers all of them.

    A pure function of corpus, split and seed: all systems of a task read the same documents. If a split has more than
    `MOST_TOKENS` tokens, about that many are read, in blocks drawn by seed. Raise UserError if there is no such
    document, or a shard is damaged.
    """
    generator = keyed_generator(seed, f"held-out-{split}")
    blocks = _drawn_blocks(corpus, split, seed)
    places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for block_index, block in enumerate(blocks):
        for document_index, meta in enumerate(block.docs):
            if grammar_name(meta.language) == grammar_name(language):
                places[meta.repository].append((block_index, document_index))
    if not places:
        raise UserError(
            f"{corpus.folder}: the {split} split has no {language} document to finetune with: "
            "use a larger corpus or give that split a larger share"
        )
    order = []
    for repository in sorted(places):
        queue = [places[repository][index] for index in generator.permutation(len(places[repository]))]
        order += [(turn, generator.random(), *place) for turn, place in enumerate(queue)]
    for _, _, block_index, document_index in sorted(order):
        block = blocks[block_index]
        tokens = np.asarray(block.document_tokens(document_index))[:-1]
        name = f"{block.docs[document_index].repository}/{block.docs[document_index].path}"
        yield HeldOutDocument(name, corpus.tokenizer.decode(tokens), tokens)


def _drawn_blocks(corpus: PreparedCorpus, split: str, seed: int) -> list[Block]:
    entries = corpus.blocks(split)
    order = keyed_generator(seed, f"held-out-blocks-{split}").permutation(len(entries))
    before = np.cumsum([0, *(entries[index].num_tokens for index in order)])[:-1]
    return [corpus.read_block(entries[index]) for index in sorted(order[before < MOST_TOKENS])]
