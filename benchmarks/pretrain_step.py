"""How the share of predicted tokens changes the cost of a training step: `make bench`.

The demo's model on one CPU core, bfloat16, forward and backward, shares in turn (A B C A B C ...); medians and
ratios. Absolute times depend on the machine and its load, the ratios much less.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from pipeline.recipe import load_run_config
from pretrain.config import PretrainConfig
from pretrain.model.memory import SegmentMemory
from pretrain.model.places import Places
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import prediction_loss
from pretrain.orders import ObjectiveConfig, lane_order

SHARES = (1 / 6, 0.5, 0.75, 1.0)


def one_step(
    model: TwoStreamTransformer, config: PretrainConfig, share: float, step: int, memory: SegmentMemory
) -> SegmentMemory:
    """Forward and backward of one micro-batch of random tokens."""
    objective = ObjectiveConfig(target_share=share)
    orders = [
        lane_order(objective, 0, step, lane, config.segment_tokens)
        for lane in range(config.micro_batch_lanes)
    ]
    rank_BL = torch.from_numpy(np.stack([order.rank_L for order in orders]))
    content = Places.in_order(rank_BL, torch.zeros_like(rank_BL))
    target_BP = torch.from_numpy(np.stack([order.target_P for order in orders]))
    tokens_BL = torch.randint(0, model.vocab_size, rank_BL.shape)
    output = model(tokens_BL, content, content.at(target_BP), memory)
    prediction_loss(output.logits_BPV, tokens_BL.gather(1, target_BP)).backward()
    model.zero_grad()
    return output.memory


def measure(num_rounds: int, shares: Sequence[float]) -> dict[float, list[float]]:
    """Seconds per step by share, shares in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run = load_run_config("demo", [])
    config = run.pretrain
    model = TwoStreamTransformer(config.model, run.prep.tokenizer.vocab_size).bfloat16()
    memory = model.empty_memory(config.micro_batch_lanes)
    times_s: dict[float, list[float]] = {share: [] for share in shares}
    for step in range(num_rounds + 1):
        for share in shares:
            start_s = time.perf_counter()
            memory = one_step(model, config, share, step, memory)
            if step:  # the first round warms up
                times_s[share].append(time.perf_counter() - start_s)
    return times_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    num_rounds = parser.parse_args().rounds
    times_s = measure(num_rounds, SHARES)
    base_s = statistics.median(times_s[SHARES[0]])
    print(f"demo model, one core, median of {num_rounds} interleaved rounds")
    print(f"{'predicted share':>16} {'ms a step':>10} {'step time':>10} {'targets per second':>19}")
    for share in SHARES:
        median_s = statistics.median(times_s[share])
        ratio, gain = median_s / base_s, share / SHARES[0] * base_s / median_s
        print(f"{share:>16.2f} {1000 * median_s:>10.1f} {ratio:>9.2f}x {gain:>18.2f}x")


if __name__ == "__main__":
    main()
