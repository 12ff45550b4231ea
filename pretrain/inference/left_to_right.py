"""Completion of prompts, token ids in and out."""

from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from pretrain.inference.beam import beam_search
from pretrain.inference.continuation import Continuation
from pretrain.inference.generation import Generated, Watch, generate
from pretrain.inference.sampling import Sampling, uniforms_of_lanes
from pretrain.inference.session import Decoder
from pretrain.inference.vocabulary import TokenRules


def complete_tokens(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    watch: Watch | None = None,
) -> list[Generated]:
    """`num_samples` continuations of every prompt, those of a prompt in a row; all lanes side by side.

    What a lane gets does not depend on the others. Raises UserError for a prompt without tokens and for one that is
    too long for absolute positions.
    """
    check_prompts(prompts, max_new_tokens)
    text = Continuation(decoder, prompts, max_new_tokens, num_samples)
    limits = [max_new_tokens] * (len(prompts) * num_samples)
    uniform_BT = uniforms_of_lanes(sampling, prompts, num_samples, max_new_tokens, decoder.model.device)
    return generate(text, limits, sampling, rules, uniform_BT, watch=watch)


def complete_by_beam(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    width: int,
    rules: TokenRules,
) -> list[list[Generated]]:
    """Up to `width` continuations of every prompt, the best first (see `beam_search`). UserError as above."""
    check_prompts(prompts, max_new_tokens)
    text = Continuation(decoder, prompts, max_new_tokens, width)
    return beam_search(text, [max_new_tokens] * len(prompts), width, rules)


def check_prompts(prompts: Sequence[Sized], max_new_tokens: int) -> None:
    """Raise UserError for what cannot be completed."""
    if max_new_tokens < 1:
        raise UserError(f"the number of new tokens must be at least 1, got {max_new_tokens}")
    if not prompts or not all(map(len, prompts)):
        raise UserError("the prompt is empty: give at least one character to go on from")
