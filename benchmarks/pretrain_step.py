"""Measure how the share of predicted tokens changes the cost of a training step and of its orders: `make bench`.

The demo's model on one CPU core, bfloat16, forward and backward, cases in turn (A B C A B C ...); medians and
ratios. Absolute times depend on the machine and its load, the ratios much less.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from data_prep.documents import SPECIAL_TOKENS
from pipeline.folder.recipe import load_run_config
from pretrain.config import PretrainConfig
from pretrain.model.loss import prediction_loss
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces

SHARES = (1 / 6, 0.5, 0.75, 1.0)
LONG_SEGMENT_TOKENS = 512
_END_HOLE_ID = SPECIAL_TOKENS.index("<end_hole>")


@dataclass
class Case:
    """Micro-batches of one shape, and the times of their steps and of making their orders."""

    mixture: OrderMixture
    segment_tokens: int
    memory: SegmentMemory
    steps_s: list[float] = field(default_factory=list)
    orders_s: list[float] = field(default_factory=list)

    @classmethod
    def of(
        cls, model: TwoStreamTransformer, config: PretrainConfig, segment_tokens: int, share: float
    ) -> "Case":
        """Return a case with all three kinds of orders; about half of the random tokens continue a word."""
        generator = torch.Generator().manual_seed(0)
        first_V, last_V = (torch.rand(2, model.vocab_size, generator=generator) < 0.7).unbind()
        mixture = OrderMixture(
            ObjectiveConfig(target_share=share), segment_tokens, WordPieces(first_V, last_V), model.device
        )
        return cls(mixture, segment_tokens, model.empty_memory(config.micro_batch_lanes))

    def run(self, model: TwoStreamTransformer, lanes: range, step: int) -> None:
        """Run forward and backward of one micro-batch of random tokens; the first step is a warm-up."""
        tokens_BL = torch.randint(model.vocab_size, (len(lanes), self.segment_tokens))
        start_s = time.perf_counter()
        orders = self.mixture.orders(tokens_BL, 0, step, lanes)
        content, targets = orders.layouts(torch.zeros_like(tokens_BL), None, self.mixture.extent)
        wanted_BP = orders.wanted(tokens_BL, _END_HOLE_ID)
        made_s = time.perf_counter()
        output = model(tokens_BL, content, targets, self.memory)
        prediction_loss(output.logits_BPV, wanted_BP).backward()
        end_s = time.perf_counter()
        model.zero_grad()
        self.memory = output.memory
        if step:
            self.steps_s.append(end_s - start_s)
            self.orders_s.append(made_s - start_s)


def measured(num_rounds: int, shares: Sequence[float]) -> tuple[list[Case], Case]:
    """Measure one case per share at the demo's segment length, and one of long segments, all in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run = load_run_config("demo", [])
    config = run.pretrain
    model = TwoStreamTransformer(config.model, run.prep.tokenizer.vocab_size).bfloat16()
    by_share = [Case.of(model, config, config.segment_tokens, share) for share in shares]
    long = Case.of(model, config, LONG_SEGMENT_TOKENS, 0.5)
    for step in range(num_rounds + 1):
        for case in [*by_share, long]:
            case.run(model, range(config.micro_batch_lanes), step)
    return by_share, long


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    num_rounds = parser.parse_args().rounds
    by_share, long = measured(num_rounds, SHARES)
    base_s = statistics.median(by_share[0].steps_s)
    print(f"demo model, one core, median of {num_rounds} interleaved rounds")
    print(f"{'predicted share':>16} {'ms a step':>10} {'step time':>10} {'targets per second':>19}")
    for share, case in zip(SHARES, by_share, strict=True):
        median_s = statistics.median(case.steps_s)
        ratio, gain = median_s / base_s, share / SHARES[0] * base_s / median_s
        print(f"{share:>16.2f} {1000 * median_s:>10.1f} {ratio:>9.2f}x {gain:>18.2f}x")
    print(f"{'segment tokens':>16} {'orders, ms':>10} {'of a step':>10}")
    for case in (by_share[SHARES.index(0.5)], long):
        orders_s, step_s = statistics.median(case.orders_s), statistics.median(case.steps_s)
        print(f"{case.segment_tokens:>16} {1000 * orders_s:>10.2f} {orders_s / step_s:>10.1%}")


if __name__ == "__main__":
    main()
