"""Vectors of texts: length one, no batch mates, long texts in segments, the search task's way of computing them."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from pretrain.inference.embedding import embed_texts
from pretrain.model.config import ModelConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer

VOCAB, SEGMENT = 19, 8


def small_model(memory_tokens: int = 5) -> TwoStreamTransformer:
    torch.manual_seed(0)
    config = ModelConfig(
        num_layers=3, model_dim=8, num_heads=2, head_dim=4, ffn_dim=12, memory_tokens=memory_tokens
    )
    return TwoStreamTransformer(config, VOCAB).double().eval()


def random_text(num_tokens: int) -> np.ndarray:
    return np.random.default_rng(num_tokens).integers(0, VOCAB, num_tokens)


@torch.no_grad()
def slow_vector(model: TwoStreamTransformer, text: np.ndarray) -> np.ndarray:
    """Token by token over the segments; the memory comes from `forward`, with nothing to predict."""
    memory, total = model.empty_memory(1), 0.0
    for first in range(0, len(text), SEGMENT):
        tokens = torch.from_numpy(text[None, first : first + SEGMENT])
        given = TokenLayout.bidirectional(torch.zeros_like(tokens))
        layers = model.read(tokens, given, memory)
        memory = model(tokens, given, given.at(tokens[:, :0]), memory).memory
        for place in range(tokens.shape[1]):
            total += torch.cat([functional.layer_norm(layer[0, place], (8,)) for layer in layers])
    return (total / torch.as_tensor(total).norm()).numpy()


@pytest.mark.parametrize("memory_tokens", [0, 5, 20])
def test_vectors_are_means_over_all_tokens_whatever_the_batch(memory_tokens: int) -> None:
    model = small_model(memory_tokens)
    texts = [random_text(length) for length in (3, 30, 8, 9, 1)]
    vectors = embed_texts(model, texts, SEGMENT)
    assert vectors.shape == (5, 3 * 8)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(vectors, np.stack([slow_vector(model, text) for text in texts]), atol=1e-6)


def test_more_texts_than_lanes_come_back_in_their_order() -> None:
    model = small_model()
    texts = [random_text(1 + number * 7 % 23) for number in range(40)]
    alone = np.concatenate([embed_texts(model, [text], SEGMENT) for text in texts])
    np.testing.assert_allclose(embed_texts(model, texts, SEGMENT), alone, atol=1e-6)


def test_memory_reaches_from_segment_to_segment() -> None:
    text = random_text(16)
    with_memory, without = (embed_texts(small_model(tokens), [text], SEGMENT) for tokens in (5, 0))
    assert not np.allclose(with_memory, without, atol=1e-3)


def test_a_text_without_tokens_has_the_vector_zero() -> None:
    vectors = embed_texts(small_model(), [random_text(0), random_text(3)], SEGMENT)
    assert not vectors[0].any()
    assert vectors[1].any()
