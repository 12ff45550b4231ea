"""Which document every scored token is of, and in which language that is written.

Shapes: L segment, T tokens of a lane's stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.prepared import BlockEntry
from pretrain.evaluation.text import ValidationText


@dataclass(frozen=True)
class LaneDocuments:
    """Of one lane's stream: every token's document, numbered from 0, and every document's language."""

    document_T: NDArray[np.int64]
    languages: tuple[str, ...]


@dataclass(frozen=True)
class _BlockDocuments:
    starts: NDArray[np.int64]
    languages: Sequence[str]


class DocumentFinder:
    """Finds the documents of a text's lanes; keeps what it found, which is small beside the tokens.

    A document that goes on in the next lane counts as one in each.
    """

    def __init__(self, text: ValidationText) -> None:
        self._text = text
        self._blocks: dict[int, _BlockDocuments] = {}
        self._lanes: dict[int, LaneDocuments] = {}

    def lane(self, lane: int) -> LaneDocuments:
        """The documents of lane `lane`. UserError when a block is damaged."""
        if lane not in self._lanes:
            self._lanes[lane] = self._find(lane)
        return self._lanes[lane]

    def _find(self, lane: int) -> LaneDocuments:
        block_parts, document_parts = [], []
        for step in range(self._text.num_segments):
            for place in self._text.reader.places(step, lane):
                starts = self._block(place.number, place.block).starts
                index = np.arange(place.start, place.start + place.num_tokens)
                document_parts.append(np.searchsorted(starts, index, side="right") - 1)
                block_parts.append(np.full(place.num_tokens, place.number))
        keys = np.stack([np.concatenate(block_parts), np.concatenate(document_parts)])
        found, document_T = np.unique(keys, axis=1, return_inverse=True)
        languages = (self._blocks[int(number)].languages[int(document)] for number, document in found.T)
        return LaneDocuments(document_T.reshape(-1), tuple(languages))

    def _block(self, number: int, entry: BlockEntry) -> _BlockDocuments:
        if number not in self._blocks:
            block = self._text.corpus.read_block(entry)
            starts = np.array(block.doc_starts, dtype=np.int64)
            self._blocks[number] = _BlockDocuments(starts, [document.language for document in block.docs])
        return self._blocks[number]
