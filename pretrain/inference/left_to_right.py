"""Completion of prompts, token ids in and out."""

from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from pretrain.inference.beam import beam_search
from pretrain.inference.continuation import Continuation, side_by_side
from pretrain.inference.generation import Generated, Watch, generate
from pretrain.inference.sampling import Sampling, uniforms_of_lanes
from pretrain.inference.session import Decoder
from pretrain.inference.vocabulary import TokenRules

MAX_NEW_TOKENS = 1 << 20


def complete_tokens(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    first_sample: int = 0,
    watch: Watch | None = None,
) -> list[Generated]:
    """Samples `first_sample` to `first_sample + num_samples` of every prompt, those of a prompt in a row.

    Prompts whose segments are full at the same token are decoded side by side, the others after them. What a lane
    gets does not depend on the others. Raises UserError for a prompt without tokens, and for one that is too long
    for absolute positions.
    """
    check_prompts(prompts, max_new_tokens)
    found: dict[int, Generated] = {}
    for group in side_by_side(prompts, max_new_tokens, decoder.segment_tokens):
        together = [prompts[number] for number in group]
        lanes = [number * num_samples + sample for number in group for sample in range(num_samples)]
        text = Continuation(decoder, together, max_new_tokens, num_samples)
        samples = range(first_sample, first_sample + num_samples)
        uniform_BT = uniforms_of_lanes(sampling, together, samples, max_new_tokens, decoder.model.device)
        generated = generate(
            text,
            [max_new_tokens] * len(lanes),
            sampling,
            rules,
            uniform_BT,
            watch=None if watch is None else _watch_of(lanes, watch),
        )
        found |= dict(zip(lanes, generated, strict=True))
    return [found[lane] for lane in range(len(found))]


def complete_by_beam(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    width: int,
    rules: TokenRules,
) -> list[list[Generated]]:
    """Up to `width` continuations of every prompt, the best first (see `beam_search`). UserError as above."""
    check_prompts(prompts, max_new_tokens)
    found: dict[int, list[Generated]] = {}
    for group in side_by_side(prompts, max_new_tokens, decoder.segment_tokens):
        text = Continuation(decoder, [prompts[number] for number in group], max_new_tokens, width)
        beams = beam_search(text, [max_new_tokens] * len(group), width, rules)
        found |= dict(zip(group, beams, strict=True))
    return [found[number] for number in range(len(prompts))]


def _watch_of(lanes: Sequence[int], watch: Watch) -> Watch:
    return lambda number, token: watch(lanes[number], token)


def check_prompts(prompts: Sequence[Sized], max_new_tokens: int, stops: Sequence[Sized] = ()) -> None:
    """Raise UserError for what cannot be completed, and for a stop string that every text has."""
    if max_new_tokens < 1:
        raise UserError(f"the number of new tokens must be at least 1, got {max_new_tokens}")
    if max_new_tokens > MAX_NEW_TOKENS:
        raise UserError(f"the number of new tokens must be at most {MAX_NEW_TOKENS}, got {max_new_tokens}")
    if not prompts or not all(map(len, prompts)):
        raise UserError("the prompt is empty: give at least one character to go on from")
    if not all(map(len, stops)):
        raise UserError("a text to stop at is empty: give at least one character, or leave it out")
