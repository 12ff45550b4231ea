"""Left-to-right bits per byte of the validation split, for the model and for n-grams.

Shapes: B lanes, L segment, V vocabulary.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cluster.errors import UserError
from data_prep.prepared import PreparedCorpus
from pretrain.data.batch import left_to_right_batch
from pretrain.data.lanes import LaneReader
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.ngram import BigramModel, UnigramModel


@dataclass(frozen=True)
class ValidationText:
    """The part of a split that is scored: `lanes` streams of `num_segments` segments, in corpus order.

    The first token of every stream is given, not scored, so that a bigram is asked for the same tokens.
    """

    reader: LaneReader
    num_segments: int
    token_bytes_V: NDArray[np.int64]

    @classmethod
    def of_split(
        cls, corpus: PreparedCorpus, split: str, max_lanes: int, segment_tokens: int, wanted_tokens: int
    ) -> "ValidationText":
        """At least `wanted_tokens` tokens where the split has them, otherwise all of it."""
        available = sum(entry.num_tokens for entry in corpus.blocks(split))
        lanes = min(max_lanes, available // segment_tokens)
        if lanes == 0:
            raise UserError(
                f"{corpus.folder}: split '{split}' has {available} tokens, fewer than one segment: use a larger corpus"
            )
        reader = LaneReader(corpus, split, lanes, segment_tokens, seed=0, shuffle=False)
        num_segments = min(-(-wanted_tokens // (lanes * segment_tokens)), reader.steps_per_epoch)
        return cls(reader, num_segments, corpus.tokenizer.token_bytes)

    def stream(self, lane: int) -> NDArray[np.int64]:
        """All tokens of one lane."""
        return self.reader.lane_tokens(lane, self.num_segments)

    def num_bytes(self) -> int:
        """UTF-8 bytes of the scored tokens."""
        return sum(int(self.token_bytes_V[self.stream(lane)[1:]].sum()) for lane in range(self.reader.lanes))


@torch.no_grad()
def model_bits(
    model: TwoStreamTransformer, text: ValidationText, lanes: range, device: torch.device
) -> float:
    """Bits the model needs for the scored tokens of `lanes`, memory carried from segment to segment."""
    if len(lanes) == 0:
        return 0.0
    was_training = model.training
    model.eval()
    memory = model.empty_memory(len(lanes))
    total_nats = 0.0
    for step in range(text.num_segments):
        batch = left_to_right_batch(text.reader, step, lanes, model.config.segment_encodings, device)
        output = model(batch.tokens_BL, batch.content, batch.targets, memory)
        memory = output.memory
        nats_BL = nn.functional.cross_entropy(
            output.logits_BPV.float().flatten(0, 1), batch.wanted_BP.flatten(), reduction="none"
        ).view_as(batch.tokens_BL)
        scored_from = 1 if step == 0 else 0
        total_nats += float(nats_BL[:, scored_from:].double().sum())
    model.train(was_training)
    return total_nats / math.log(2.0)


def ngram_bits(
    training: LaneReader, num_steps: int, text: ValidationText, vocab_size: int
) -> tuple[float, float]:
    """(unigram, bigram) bits of the scored tokens, counted on what `num_steps` training steps read."""

    def streams() -> Iterator[NDArray[np.int64]]:
        return (training.lane_tokens(lane, num_steps) for lane in range(training.lanes))

    unigram, bigram = UnigramModel.count(streams(), vocab_size), BigramModel.count(streams(), vocab_size)
    scored = [text.stream(lane) for lane in range(text.reader.lanes)]
    return sum(map(unigram.bits, scored)), sum(map(bigram.bits, scored))
