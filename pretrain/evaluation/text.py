"""The text that is scored, the same in every evaluation and for every number of workers: its tokens and documents.

Shapes: L segment, T tokens of a lane, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.finished.prepared import BlockEntry, PreparedCorpus
from pretrain.data.lanes import LaneReader


@dataclass(frozen=True)
class ValidationText:
    """The part of a split that is scored: `lanes` streams of `num_segments` segments, in corpus order.

    The first token of every stream is given, not scored, so that a bigram model is scored on the same tokens.
    """

    corpus: PreparedCorpus
    reader: LaneReader
    num_segments: int
    token_bytes_V: NDArray[np.int64]

    @classmethod
    def of_split(
        cls, corpus: PreparedCorpus, split: str, max_lanes: int, segment_tokens: int, wanted_tokens: int
    ) -> "ValidationText":
        """Take at least `wanted_tokens` tokens of a split, or all of it if it has fewer.

        Raises UserError when the split has fewer tokens than one segment.
        """
        available = sum(entry.num_tokens for entry in corpus.blocks(split))
        lanes = min(max_lanes, available // segment_tokens)
        if lanes == 0:
            raise UserError(
                f"{corpus.folder}: split '{split}' has {available} tokens, fewer than one segment: use a larger corpus"
            )
        reader = LaneReader(corpus, split, lanes, segment_tokens, seed=0, shuffle=False)
        num_segments = min(-(-wanted_tokens // (lanes * segment_tokens)), reader.steps_per_epoch)
        return cls(corpus, reader, num_segments, corpus.tokenizer.token_bytes)

    @property
    def lanes(self) -> int:
        """The number of streams."""
        return self.reader.lanes

    def segments_of(self, wanted_tokens: int) -> int:
        """Return how many segments of every stream hold `wanted_tokens` tokens; all if the text has fewer."""
        return min(-(-wanted_tokens // (self.lanes * self.reader.segment_tokens)), self.num_segments)

    def stream(self, lane: int) -> NDArray[np.int64]:
        """Return all tokens of one lane."""
        return self.reader.lane_tokens(lane, self.num_segments)


@dataclass(frozen=True)
class LaneDocuments:
    """The documents of one lane's stream: every token's document, numbered from 0, and every document's language."""

    document_T: NDArray[np.int64]
    languages: tuple[str, ...]


@dataclass(frozen=True)
class _BlockDocuments:
    starts: NDArray[np.int64]
    languages: Sequence[str]


class DocumentFinder:
    """Finds the documents of a text's lanes and caches them, which is small beside the tokens.

    A document that continues in the next lane counts as one in each.
    """

    def __init__(self, text: ValidationText) -> None:
        self._text = text
        self._blocks: dict[int, _BlockDocuments] = {}
        self._lanes: dict[int, LaneDocuments] = {}

    def lane(self, lane: int) -> LaneDocuments:
        """Return the documents of lane `lane`. Raises UserError when a block is damaged."""
        if lane not in self._lanes:
            self._lanes[lane] = self._find(lane)
        return self._lanes[lane]

    def _find(self, lane: int) -> LaneDocuments:
        block_parts, document_parts = [], []
        for step in range(self._text.num_segments):
            for place in self._text.reader.block_ranges(step, lane):
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
