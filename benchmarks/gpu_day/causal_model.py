"""A causal model of the same size in plain PyTorch: what a permutation language model's speed is compared with.

GPT-2's architecture (pre-norm, learned positions, tied embeddings) with FlashAttention from left to right, bfloat16
weights, residual stream and norms in float32 as in our model; every token is predicted.

Shapes: B lanes, L segment, D model, N heads, H head dim, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.config import ModelConfig


class _Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = config.num_heads, config.head_dim, config.dropout
        self.attention_dropout = config.attention_dropout
        inner_dim = config.num_heads * config.head_dim
        self.attention_norm, self.feed_forward_norm = (nn.LayerNorm(config.model_dim) for _ in range(2))
        self.all_heads = nn.Linear(config.model_dim, 3 * inner_dim)
        self.output = nn.Linear(inner_dim, config.model_dim)
        self.rise = nn.Linear(config.model_dim, config.ffn_dim)
        self.fall = nn.Linear(config.ffn_dim, config.model_dim)

    def forward(self, rows_BLD: Tensor) -> Tensor:
        lanes, length, _ = rows_BLD.shape
        heads_BLE = self.all_heads(_normed(self.attention_norm, rows_BLD, self.rise.weight.dtype))
        heads_3BNLH = heads_BLE.view(lanes, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query_BNLH, key_BNLH, value_BNLH = heads_3BNLH.unbind(0)
        dropout = self.attention_dropout if self.training else 0.0
        mixed_BNLH = functional.scaled_dot_product_attention(
            query_BNLH, key_BNLH, value_BNLH, is_causal=True, dropout_p=dropout
        )
        mixed_BLD = self.output(mixed_BNLH.transpose(1, 2).flatten(2))
        rows_BLD = rows_BLD + functional.dropout(mixed_BLD, self.dropout, self.training)
        risen_BLF = functional.gelu(
            self.rise(_normed(self.feed_forward_norm, rows_BLD, self.rise.weight.dtype))
        )
        return rows_BLD + functional.dropout(self.fall(risen_BLF), self.dropout, self.training)


def _normed(norm: nn.LayerNorm, rows_BLD: Tensor, dtype: torch.dtype) -> Tensor:
    weight_D, bias_D = norm.weight.float(), norm.bias.float()
    return functional.layer_norm(rows_BLD, norm.normalized_shape, weight_D, bias_D, norm.eps).to(dtype)


class CausalModel(nn.Module):
    """Predicts every token from those before it."""

    def __init__(self, config: ModelConfig, vocab_size: int, segment_tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.model_dim)
        self.position_LD = nn.Parameter(torch.randn(segment_tokens, config.model_dim) * 0.02)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.model_dim)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens_BL: Tensor) -> Tensor:
        """Return the mean loss in nats; the last token is followed by the first, so that as many are predicted."""
        weight_VD = self.embedding.weight
        rows_BLD = functional.embedding(tokens_BL, weight_VD).float() + self.position_LD.float()
        for block in self.blocks:
            rows_BLD = block(rows_BLD)
        logits_BLV = functional.linear(_normed(self.norm, rows_BLD, weight_VD.dtype), weight_VD)
        wanted_BL = tokens_BL.roll(-1, dims=1)
        return functional.cross_entropy(logits_BLV.flatten(0, 1).float(), wanted_BL.flatten())


def training_flops(config: ModelConfig, vocab_size: int, lanes: int, segment_tokens: int) -> int:
    """Return the FLOPs of a forward and backward pass, counted as in `pretrain/plan/flops.py`.

    Scores of all pairs are counted, also those that nobody sees, as is usual.
    """
    inner_dim, tokens = config.num_heads * config.head_dim, lanes * segment_tokens
    per_layer = 2 * 4 * config.model_dim * inner_dim + 2 * 2 * config.model_dim * config.ffn_dim
    attention = 2 * 2 * segment_tokens * inner_dim
    return 3 * tokens * (config.num_layers * (per_layer + attention) + 2 * config.model_dim * vocab_size)
