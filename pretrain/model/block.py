"""One layer: two-stream attention and a feed-forward network, residual and normalised.

Shapes: B lanes, L segment, M memory, K = M + L keys, P predicted, D model, F feed-forward.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.attention import TwoStreamAttention, Visibility
from pretrain.model.config import ModelConfig


class FeedForward(nn.Module):
    """D -> F -> D with GELU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.model_dim, config.ffn_dim)
        self.down = nn.Linear(config.ffn_dim, config.model_dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, stream_BQD: Tensor) -> Tensor:
        return self.down(self.dropout(functional.gelu(self.up(stream_BQD))))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Advances both streams by one layer; every weight serves both."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = TwoStreamAttention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.LayerNorm(config.model_dim)
        self.feed_forward_norm = nn.LayerNorm(config.model_dim)
        self.dropout = nn.Dropout(config.dropout)

    def _before(self, norm: nn.LayerNorm, stream_BQD: Tensor) -> Tensor:
        if self.pre_norm:
            stream_BQD = norm(stream_BQD)
        return stream_BQD

    def _add(self, norm: nn.LayerNorm, stream_BQD: Tensor, update_BQD: Tensor) -> Tensor:
        stream_BQD = stream_BQD + self.dropout(update_BQD)
        if not self.pre_norm:
            stream_BQD = norm(stream_BQD)
        return stream_BQD

    def _finish(self, stream_BQD: Tensor, attended_BQD: Tensor) -> Tensor:
        stream_BQD = self._add(self.attention_norm, stream_BQD, attended_BQD)
        update_BQD = self.feed_forward(self._before(self.feed_forward_norm, stream_BQD))
        return self._add(self.feed_forward_norm, stream_BQD, update_BQD)

    def forward(
        self,
        content_BLD: Tensor,
        query_BPD: Tensor | None,
        memory_BMD: Tensor,
        target_BP: Tensor | None,
        table_RD: Tensor,
        visibility: Visibility,
        advance_content: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Both streams one layer up.

        With `advance_content=False` the content stream is returned as it came: nobody reads the last layer's.
        """
        context_BKD = self._before(self.attention_norm, torch.cat([memory_BMD, content_BLD], dim=1))
        key_BNKH, value_BNKH = self.attention.keys_values(context_BKD)
        distance_NHR = self.attention.distance_keys(table_RD)
        if query_BPD is not None and target_BP is not None:
            attended_BPD = self.attention.predict(
                self._before(self.attention_norm, query_BPD),
                target_BP,
                content_BLD.shape[1],
                key_BNKH,
                value_BNKH,
                distance_NHR,
                visibility,
            )
            query_BPD = self._finish(query_BPD, attended_BPD)
        if advance_content:
            normed_BLD = context_BKD[:, memory_BMD.shape[1] :]
            attended_BLD = self.attention.content(normed_BLD, key_BNKH, value_BNKH, distance_NHR, visibility)
            content_BLD = self._finish(content_BLD, attended_BLD)
        return content_BLD, query_BPD
