"""Decoding of many texts of similar length side by side: greedy, beam search or sampling.

Shapes: B lanes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.documents import SPECIAL_TOKENS
from finetune.decoding.config import DecodingConfig
from pretrain.inference.beam import beam_search
from pretrain.inference.generation import Generated, IncrementalDecoder, generate
from pretrain.inference.sampling import uniforms
from pretrain.inference.token_rules import TokenRules


def ended_by(special: str, config: DecodingConfig) -> TokenRules:
    """Return rules that allow ordinary tokens and, of the special ones, only `special`, which ends a text."""
    never = tuple(number for number, token in enumerate(SPECIAL_TOKENS) if token != special)
    return TokenRules(never, SPECIAL_TOKENS.index(special), config.may_be_empty, config.max_repeats)


def choose_tokens(
    text: IncrementalDecoder,
    contexts: Sequence[NDArray[np.int64]],
    samples: Sequence[int],
    config: DecodingConfig,
    max_new_tokens: int,
    rules: TokenRules,
    device: torch.device,
) -> list[Generated]:
    """Return the best text for every context; `text` has `config.beam` consecutive lanes for each.

    The random numbers of sampling depend on `contexts`, and on `samples` for texts of the same context.
    """
    limits = [config.limit_tokens(len(context), max_new_tokens) for context in contexts]
    if config.beam > 1:
        found = beam_search(
            text, limits, config.beam, rules, length_power=config.length_power, ended_first=True
        )
        return [row[0] for row in found]
    return generate(
        text, limits, config.sampling, rules, _drawn(contexts, samples, config, max_new_tokens, device)
    )


def occurrences(sources: Iterable[Hashable]) -> list[int]:
    """Return how many equal sources precede each, so that a repeated source gets another sample."""
    seen: Counter[Hashable] = Counter()
    found = []
    for source in sources:
        found.append(seen[source])
        seen[source] += 1
    return found


def write_in_batches(
    lengths: Sequence[int],
    batch: int,
    write: Callable[[Sequence[int]], Sequence[str]],
    on_progress: Callable[[int], None],
) -> list[str]:
    """Write the texts with the numbers `range(len(lengths))` by `write`, at most `batch` at a time.

    The longest come first, so that texts that do not fit into memory fail at the start.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    written = [""] * len(lengths)
    for first in range(0, len(order), batch):
        numbers = order[first : first + batch]
        for number, text in zip(numbers, write(numbers), strict=True):
            written[number] = text
        on_progress(first + len(numbers))
    return written


def _drawn(
    contexts: Sequence[NDArray[np.int64]],
    samples: Sequence[int],
    config: DecodingConfig,
    num_steps: int,
    device: torch.device,
) -> torch.Tensor | None:
    """Return the random numbers of sampling [B, T]; None if decoding is greedy."""
    if config.sampling.greedy:
        return None
    seed = config.sampling.seed
    rows = [uniforms(seed, *one, num_steps) for one in zip(contexts, samples, strict=True)]
    return torch.stack(rows).to(device)
