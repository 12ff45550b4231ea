"""From a text that is being written to its tokens.

Shapes: B lanes.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.documents import SPECIAL_TOKENS
from finetune.decoding.config import DecodingConfig
from pretrain.inference.beam import beam_search
from pretrain.inference.generation import Generated, generate
from pretrain.inference.sampling import uniforms_of_lanes
from pretrain.inference.vocabulary import TokenRules
from pretrain.inference.written import Written


def ended_by(special: str) -> TokenRules:
    """Ordinary tokens are written, of the special ones only `special`, which ends a text."""
    never = tuple(number for number, token in enumerate(SPECIAL_TOKENS) if token != special)
    return TokenRules(never, SPECIAL_TOKENS.index(special))


def choose_tokens(
    text: Written,
    contexts: Sequence[NDArray[np.int64]],
    config: DecodingConfig,
    max_new_tokens: int,
    rules: TokenRules,
    device: torch.device,
) -> list[Generated]:
    """The best text for every context; `text` has `config.beam` lanes of each in a row.

    `contexts` tell texts apart where tokens are drawn.
    """
    limits = [max_new_tokens] * len(contexts)
    if config.beam > 1:
        found = beam_search(text, limits, config.beam, rules, length_power=config.length_power)
        return [row[0] for row in found]
    uniform_BT = uniforms_of_lanes(config.sampling, contexts, range(1), max_new_tokens, device)
    return generate(text, limits, config.sampling, rules, uniform_BT)
