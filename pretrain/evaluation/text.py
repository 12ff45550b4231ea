"""The tokens that are scored: the same in every evaluation and for every world size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.prepared import PreparedCorpus
from pretrain.data.lanes import LaneReader


@dataclass(frozen=True)
class ValidationText:
    """The part of a split that is scored: `lanes` streams of `num_segments` segments, in corpus order.

    The first token of every stream is given, not scored, so that a bigram is asked for the same tokens.
    """

    corpus: PreparedCorpus
    reader: LaneReader
    num_segments: int
    token_bytes_V: NDArray[np.int64]

    @classmethod
    def of_split(
        cls, corpus: PreparedCorpus, split: str, max_lanes: int, segment_tokens: int, wanted_tokens: int
    ) -> "ValidationText":
        """At least `wanted_tokens` tokens where the split has them, otherwise all of it.

        UserError when the split has fewer tokens than one segment.
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
        """How many streams."""
        return self.reader.lanes

    def segments_of(self, wanted_tokens: int) -> int:
        """How many segments of every stream hold `wanted_tokens` tokens; all where the text has fewer."""
        return min(-(-wanted_tokens // (self.lanes * self.reader.segment_tokens)), self.num_segments)

    def stream(self, lane: int) -> NDArray[np.int64]:
        """All tokens of one lane."""
        return self.reader.lane_tokens(lane, self.num_segments)
