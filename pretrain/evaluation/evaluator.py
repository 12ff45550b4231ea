"""Evaluation on all workers: lanes are divided among them, sums over documents are added up.

The training's state does not change: no random number is drawn from torch's generators, the training's memory is not
read, and the model returns to its mode.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from data_prep.finished.prepared import PreparedCorpus
from pretrain.config import ValidationConfig
from pretrain.data.lanes import LaneReader
from pretrain.evaluation.baselines import Baselines, ngram_baselines
from pretrain.evaluation.conditions import HEADLINE, Condition, ValidationOrders, conditions
from pretrain.evaluation.result import NUM_SUMS, Evaluation
from pretrain.evaluation.scoring import Scorer
from pretrain.evaluation.text import DocumentFinder, ValidationText
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.words import WordPieces


@dataclass(frozen=True)
class _Sample:
    """A text, and how many of its segments are scored in the conditions other than the headline's."""

    scorer: Scorer
    order_segments: int
    languages: tuple[str, ...]
    """The languages of all workers' documents, sorted; empty if figures are not made by language."""


class Evaluator:
    """Scores the validation split; every worker makes one and calls the same methods in the same order."""

    def __init__(
        self,
        config: ValidationConfig,
        corpus: PreparedCorpus,
        lanes: int,
        segment_tokens: int,
        lanes_per_pass: int,
        device: torch.device,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the texts: at most `lanes` streams are scored, `lanes_per_pass` of them at once on one worker.

        `tick` is called after each part of an evaluation, equally often in every worker. Raises UserError when the
        split has fewer tokens than one segment.
        """
        self._config, self._corpus, self._device, self._tick = config, corpus, device, tick
        self._segment_tokens, self._lanes_per_pass = segment_tokens, lanes_per_pass
        self._during_text, self._final_text = (
            ValidationText.of_split(corpus, "validation", lanes, segment_tokens, wanted_tokens)
            for wanted_tokens in (config.during_tokens, config.final_tokens)
        )

    def during(self, model: TwoStreamTransformer) -> Evaluation:
        """Score the sample for training: `during_tokens`, in other conditions `during_order_tokens`.

        Collective. Raises UserError when a block is damaged.
        """
        return self._evaluate(model, self._during_sample)

    def final(self, model: TwoStreamTransformer) -> Evaluation:
        """Score `final_tokens`, the same tokens in all conditions. Collective; raises as `during`."""
        return self._evaluate(model, self._sample(self._final_text, self._config.final_tokens))

    def baselines(
        self, training: LaneReader, num_steps: int, part_done: Callable[[], None] = lambda: None
    ) -> Baselines:
        """Return the n-gram baselines for the text of `final`, counted on the first `num_steps` training steps.

        Reads all lanes, so one worker is enough, and calls `part_done` after each.
        """
        return ngram_baselines(
            training, num_steps, self._final_text, self._corpus.tokenizer.vocab_size, part_done
        )

    @cached_property
    def _orders(self) -> ValidationOrders:
        words = WordPieces.of_tokenizer(self._corpus.tokenizer, self._device)
        return ValidationOrders(self._segment_tokens, words, self._device)

    @cached_property
    def _during_sample(self) -> _Sample:
        return self._sample(self._during_text, self._config.during_order_tokens)

    def _sample(self, text: ValidationText, order_tokens: int) -> _Sample:
        """Make a sample. Collective, because a worker knows the languages of its own lanes only."""
        documents = DocumentFinder(text)
        own_languages: set[str] = set()
        for lanes, counts in passes(text.lanes, lanes_per_pass=1):
            if counts:
                own_languages.update(name for lane in lanes for name in documents.lane(lane).languages)
            self._tick()
        languages = union_over_workers(own_languages)
        scorer = Scorer(text, documents, self._orders, self._device, self._tick)
        return _Sample(scorer, text.segments_of(order_tokens), languages)

    def _evaluate(self, model: TwoStreamTransformer, sample: _Sample) -> Evaluation:
        scored = conditions(self._config.by_order, has_memory=model.config.memory_tokens > 0)
        with _evaluating(model):
            sums = np.stack([self._sums(model, sample, condition) for condition in scored])
        return Evaluation.of_sums(scored, sample.languages, sum_over_workers(sums, self._device))

    def _sums(
        self, model: TwoStreamTransformer, sample: _Sample, condition: Condition
    ) -> NDArray[np.float64]:
        """Return this worker's part of the sums by language."""
        text = sample.scorer.text
        num_segments = text.num_segments if condition == HEADLINE else sample.order_segments
        row_of = {language: row for row, language in enumerate(sample.languages)}
        sums = np.zeros((max(1, len(sample.languages)), NUM_SUMS))
        for lanes, counts in passes(text.lanes, self._lanes_per_pass):
            costs = sample.scorer.costs(model, condition, lanes, num_segments)
            if counts:
                rows = [row_of.get(language, 0) for language in costs.languages]
                np.add.at(sums, rows, costs.sums())
        return sums


@contextmanager
def _evaluating(model: TwoStreamTransformer) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def rank_and_world_size() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def lanes_of_rank(num_lanes: int) -> range:
    rank, world_size = rank_and_world_size()
    return range(num_lanes * rank // world_size, num_lanes * (rank + 1) // world_size)


def passes(num_lanes: int, lanes_per_pass: int) -> Iterator[tuple[range, bool]]:
    """Yield the lanes of this worker, some at a time, and whether they count.

    Every worker makes the same number of passes, of which the last may not count: under ZeRO 3 a forward pass needs
    all workers.
    """
    mine, (_, world_size) = lanes_of_rank(num_lanes), rank_and_world_size()
    most_lanes = -(-num_lanes // world_size)
    for first in range(0, most_lanes, lanes_per_pass):
        lanes = mine[first : first + lanes_per_pass]
        yield (lanes, True) if len(lanes) else (range(1), False)


def union_over_workers(languages: set[str]) -> tuple[str, ...]:
    """Return the union over workers, sorted; collective."""
    _, world_size = rank_and_world_size()
    found = [languages] * world_size
    if world_size > 1:
        dist.all_gather_object(found, languages)
    return tuple(sorted(set().union(*found)))


def sum_over_workers(sums: NDArray[np.float64], device: torch.device) -> NDArray[np.float64]:
    """Return the sums over all workers; collective."""
    if rank_and_world_size()[1] == 1:
        return sums
    total = torch.from_numpy(sums).to(device)
    dist.all_reduce(total)
    added: NDArray[np.float64] = total.cpu().numpy()
    return added
