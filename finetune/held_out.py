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
"""Of the corpus: the base model has not been trained on it, so a task can train on it."""
SPLIT_TO_TEST_ON = "test"
MOST_TOKENS = 1 << 28
"""Of a split that are looked at: a gigabyte of code, more than any task learns."""


@dataclass(frozen=True)
class HeldOutDocument:
    """One file: `tokens` are those of `text`, without the end-of-document token."""

    name: str
    text: str
    tokens: npt.NDArray[np.integer]


def held_out_documents(
    corpus: PreparedCorpus, split: str, seed: int, language: str = "Python"
) -> Iterator[HeldOutDocument]:
    """The documents of a split in one language, packages taking turns, so that any first part covers all packages.

    A pure function of corpus, split and seed: all systems of a task read the same. Of a split larger than `MOST_TOKENS`
    about as many, in blocks drawn by seed. Raises UserError when there is no such document, or a shard is damaged.
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
