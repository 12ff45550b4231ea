"""Compare tokens per second of greedy generation with the peers': `python -m benchmarks.model_generation`.

A prompt of 256 random tokens, then 256 new ones, none of which ends a text, from random weights; every model attends to
the whole prompt and all new tokens. Lanes have the same length, so nothing is padded.

Hugging Face's XLNet generates in two ways, both measured: with `mems` (its default) it keeps the inputs of layers and
computes keys and values of all of them again for every token; without, it runs the whole text through both streams for
every token. The second is too slow for a full run: two tokens are generated at NUM_LENGTHS text lengths, and the mean
time per token is multiplied by 256 (`scaled` in the table).
"""

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.model_contenders import gpt2_model, our_model, xlnet_model
from benchmarks.model_machine import (
    NUM_THREADS,
    STEADY_HEAP,
    Timing,
    describe_machine,
    keep,
    paired_ratios,
    print_table,
    time_in_turn,
    use_environment,
)
from benchmarks.model_sizes import SIZES, Size
from pretrain.inference.completion import complete_tokens
from pretrain.inference.decoder import Decoder
from pretrain.inference.sampling import GREEDY
from pretrain.inference.token_rules import TokenRules

PROMPT_TOKENS = 256
NUM_LENGTHS = 5
SCALED_TOKENS = 2
PRECISIONS = ("float32", "bfloat16")


def our_generation(size: Size, precision: str, prompt_BT: Tensor, num_new: int) -> Callable[[], None]:
    """Return a call that generates with permcode's `complete`, without the tokenizer."""
    model = our_model(size).to(getattr(torch, precision))
    decoder = Decoder(model, segment_tokens=prompt_BT.shape[1] + num_new)
    prompts = [row.astype(np.int64) for row in prompt_BT.numpy()]

    def generate() -> None:
        found = complete_tokens(decoder, prompts, num_new, GREEDY, TokenRules())
        assert all(len(one.tokens) == num_new for one in found)

    return generate


def gpt2_generation(size: Size, precision: str, prompt_BT: Tensor, num_new: int) -> Callable[[], None]:
    """Return a call that generates with GPT-2 and its cache."""
    model: Any = gpt2_model(size, prompt_BT.shape[1] + num_new).eval().to(getattr(torch, precision))
    return lambda: peer_generate(model, prompt_BT, num_new, use_cache=True)


def xlnet_generation(size: Size, precision: str, prompt_BT: Tensor, num_new: int) -> Callable[[], None]:
    """Return a call that generates with XLNet and its `mems`; bfloat16 is autocast, all that XLNet supports."""
    model: Any = xlnet_model(size).eval()
    model.transformer.mem_len = None
    autocast = torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16" else nullcontext()

    def generate() -> None:
        with autocast:
            peer_generate(model, prompt_BT, num_new, use_mems=True)

    return generate


def xlnet_without_mems(size: Size, precision: str, prompt_BT: Tensor, num_new: int) -> Callable[[], float]:
    """Return a call of XLNet that reads the whole text per token and returns the estimated seconds of all tokens."""
    model: Any = xlnet_model(size).eval()
    autocast = torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16" else nullcontext()
    longest = max(0, num_new - SCALED_TOKENS)
    texts = [
        torch.cat([prompt_BT, prompt_BT.repeat(1, 2)[:, : longest * number // (NUM_LENGTHS - 1)]], dim=1)
        for number in range(NUM_LENGTHS)
    ]

    def generate() -> float:
        started_s = time.perf_counter()
        with autocast:
            for text_BT in texts:
                peer_generate(model, text_BT, SCALED_TOKENS, use_mems=False)
        return (time.perf_counter() - started_s) / (NUM_LENGTHS * SCALED_TOKENS) * num_new

    return generate


def peer_generate(model: Any, text_BT: Tensor, num_new: int, **options: bool) -> None:
    """Run Hugging Face's greedy `generate` for exactly `num_new` tokens."""
    with torch.inference_mode():
        found = model.generate(
            text_BT,
            attention_mask=torch.ones_like(text_BT),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            pad_token_id=0,
            **options,
        )
    assert found.shape[1] == text_BT.shape[1] + num_new


def contenders(
    size: Size, lanes: int, num_new: int
) -> tuple[dict[str, Callable[[], None]], dict[str, Callable[[], float]]]:
    """Return by name the calls that are timed in full, and those whose time is scaled."""
    generator = torch.Generator().manual_seed(0)
    prompt_BT = torch.randint(0, size.vocab_size, (lanes, PROMPT_TOKENS), generator=generator)
    whole, scaled = {}, {}
    for precision in PRECISIONS:
        whole[f"ours {precision}"] = our_generation(size, precision, prompt_BT, num_new)
        whole[f"GPT-2 {precision}"] = gpt2_generation(size, precision, prompt_BT, num_new)
        theirs = "autocast" if precision == "bfloat16" else precision
        whole[f"XLNet mems {theirs}"] = xlnet_generation(size, precision, prompt_BT, num_new)
        scaled[f"XLNet {theirs} (scaled)"] = xlnet_without_mems(size, precision, prompt_BT, num_new)
    return whole, scaled


def measure(size: Size, lanes: int, num_new: int, num_rounds: int, num_scaled_rounds: int) -> None:
    """Measure all contenders at one batch size and print their table."""
    whole, scaled = contenders(size, lanes, num_new)
    timings = time_in_turn(whole, num_rounds, num_warm_up=1)
    ours = {name: timings[name] for name in whole if name.startswith("ours")}
    rows = []
    for name, timing in timings.items():
        ratios = [paired_ratios(own, timing)[1] for own in ours.values()]
        rows.append(row_of(size, lanes, num_new, name, timing, ratios))
    for name, work in scaled.items():
        timing = Timing([work() for _ in range(num_scaled_rounds)], [])
        ratios = [timing.median_s / own.median_s for own in ours.values()]
        rows.append(row_of(size, lanes, num_new, name, timing, ratios))
    title = f"{size.name}, batch {lanes}, {PROMPT_TOKENS} + {num_new} tokens: median of {num_rounds} rounds"
    print_table(title, ["contender", "tokens/s", *(f"{name} is faster by" for name in ours)], rows)


def row_of(size: Size, lanes: int, num_new: int, name: str, timing: Timing, ratios: list[float]) -> list[str]:
    """Return the table's row of a contender and write it to the results file."""
    tokens_per_s = lanes * num_new / timing.median_s
    setting = {"size": size.name, "lanes": lanes, "num_new": num_new, "contender": name}
    keep("generation", setting | {"tokens_per_s": tokens_per_s, "wall_s": timing.wall_s, "ratios": ratios})
    return [name, f"{tokens_per_s:.0f}", *(f"{ratio:.2f}x" for ratio in ratios)]


def main() -> None:
    """Measure both batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--size", choices=sorted(SIZES), default="S")
    parser.add_argument("--threads", type=int, default=NUM_THREADS, help="1 where others use the machine too")
    arguments = parser.parse_args()
    use_environment(STEADY_HEAP, arguments.threads)
    print(f"Generation: {describe_machine()}")
    for lanes in (1, 16):
        if arguments.quick:
            measure(SIZES["tiny"], lanes, num_new=8, num_rounds=1, num_scaled_rounds=1)
        else:
            measure(SIZES[arguments.size], lanes, num_new=256, num_rounds=3, num_scaled_rounds=1)


if __name__ == "__main__":
    main()
