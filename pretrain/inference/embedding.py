"""Embeddings: a vector per text, from the content stream read in both directions.

It is the mean over the text's tokens of the normalised inputs of all layers, side by side: the lowest one represents
words, the higher ones their meaning in context.

Shapes: B lanes, L segment, D model, E = layers * D, T tokens of a text.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from pretrain.inference.finite import check_finite
from pretrain.inference.text_batches import text_batches
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.transformer import TwoStreamTransformer

_LANES = 16


def summed_states(inputs_BLD: Sequence[Tensor], group_BL: Tensor) -> Tensor:
    """Return the sums of the normalised inputs of all layers over the lanes' tokens without padding, float32 [B, E]."""
    is_text_BL1 = (group_BL != UNFILLED_GROUP).to(torch.float32)[:, :, None]
    sums_BD = [
        (functional.layer_norm(layer_BLD.float(), layer_BLD.shape[-1:]) * is_text_BL1).sum(dim=1)
        for layer_BLD in inputs_BLD
    ]
    return torch.cat(sums_BD, dim=-1)


@torch.inference_mode()
def embed_texts(
    model: TwoStreamTransformer, texts: Sequence[NDArray[np.integer]], segment_tokens: int
) -> NDArray[np.float32]:
    """Return vectors [number of texts, E] of length one; zeros for a text without tokens.

    A text longer than a segment is read in segments with the model's memory, each segment as a context.
    The model must be in evaluation mode. Raises UserError for numbers that are not finite.
    """
    sums = np.zeros((len(texts), model.config.num_layers * model.config.model_dim), dtype=np.float64)
    for batch in text_batches(texts, _LANES, segment_tokens):
        memory = model.empty_memory(_LANES)
        for segment in batch:
            memory = memory.lanes(0, len(segment.numbers))
            group_BL = segment.group_BL.to(model.device)
            document_BL = torch.zeros_like(group_BL) if model.config.segment_encodings else None
            rank_BL = model.context_ranks(torch.zeros_like(group_BL))
            content = TokenLayout.contiguous(rank_BL, group_BL, document_BL)
            inputs_BLD = model.read(segment.tokens_BL.to(model.device), content, memory)
            memory = memory.advanced(inputs_BLD, content)
            sums[segment.numbers] += summed_states(inputs_BLD, group_BL).double().cpu().numpy()
    for number, sum_E in enumerate(sums, start=1):
        check_finite(sum_E, f"the numbers of text {number}'s vector")
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    vectors: NDArray[np.float32] = (sums / np.where(length > 0, length, 1.0)).astype(np.float32)
    return vectors
