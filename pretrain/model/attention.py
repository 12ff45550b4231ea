"""Two-stream attention with Transformer-XL relative positions (XLNet, equations of section 2.3 and 2.4).

Shapes: B lanes, L segment, M memory, K = M + L keys, P predicted, Q = L or P queries, N heads, H head dim,
D model, R = M + 2L - 1 distances.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.config import ModelConfig
from pretrain.model.memory import UNFILLED_GROUP
from pretrain.model.positions import shift_all, shift_some


class Visibility:
    """Which keys each query may attend to, from ranks and document groups.

    Content i sees key j when rank[j] <= rank[i], the query stream at i when rank[j] < rank[i]; both only inside
    one document group. Memory comes before every rank. Boolean masks with a head dimension of 1.
    """

    def __init__(
        self, rank_BL: Tensor, group_BL: Tensor, memory_group_BM: Tensor, target_BP: Tensor | None
    ) -> None:
        before_all_BM = torch.full_like(memory_group_BM, torch.iinfo(rank_BL.dtype).min)
        rank_BK = torch.cat([before_all_BM.to(rank_BL.dtype), rank_BL], dim=1)
        # A padding or unfilled key must match no query's group, so it gets a group no query can have.
        filled_BM = torch.where(
            memory_group_BM == UNFILLED_GROUP, torch.iinfo(torch.int64).min, memory_group_BM
        )
        group_BK = torch.cat([filled_BM, group_BL], dim=1)
        same_BLK = group_BL[:, :, None] == group_BK[:, None, :]
        self.content_B1LK = (same_BLK & (rank_BK[:, None, :] <= rank_BL[:, :, None]))[:, None]
        if target_BP is not None:
            rank_BP = rank_BL.gather(1, target_BP)
            group_BP = group_BL.gather(1, target_BP)
            same_BPK = group_BP[:, :, None] == group_BK[:, None, :]
            self.query_B1PK = (same_BPK & (rank_BK[:, None, :] < rank_BP[:, :, None]))[:, None]
            # The first token of an order sees nothing; its attention output must be zero, not an average of
            # what it may not see.
            self.query_sees_any_B1P1 = self.query_B1PK.any(dim=-1, keepdim=True)


class TwoStreamAttention(nn.Module):
    """Multi-head attention whose projections serve the content and the query stream alike."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.head_dim = config.num_heads, config.head_dim
        inner_dim = config.num_heads * config.head_dim
        self.query = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.key = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.value = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.position = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.output = nn.Linear(inner_dim, config.model_dim, bias=False)
        self.content_bias_NH = nn.Parameter(torch.empty(config.num_heads, config.head_dim))
        self.position_bias_NH = nn.Parameter(torch.empty(config.num_heads, config.head_dim))

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.view(*flat.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def keys_values(self, context_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, N, K, H] over [memory; segment], shared by both streams."""
        return self._heads(self.key(context_BKD)), self._heads(self.value(context_BKD))

    def distance_keys(self, table_RD: Tensor) -> Tensor:
        """Projected relative positions [N, H, R], shared by all lanes."""
        projected_RNH: Tensor = self.position(table_RD).view(-1, self.num_heads, self.head_dim)
        return projected_RNH.permute(1, 2, 0)

    def _scores(self, stream_BQD: Tensor, key_BNKH: Tensor, distance_NHR: Tensor) -> tuple[Tensor, Tensor]:
        query_BNQH = self._heads(self.query(stream_BQD)) * self.head_dim**-0.5
        scale = self.head_dim**-0.5
        by_key_BNQK = (query_BNQH + self.content_bias_NH[:, None] * scale) @ key_BNKH.transpose(-1, -2)
        by_distance_BNQR = (query_BNQH + self.position_bias_NH[:, None] * scale) @ distance_NHR
        return by_key_BNQK, by_distance_BNQR

    def _mix(self, score_BNQK: Tensor, visible_B1QK: Tensor, value_BNKH: Tensor) -> Tensor:
        hidden = torch.finfo(score_BNQK.dtype).min
        weight_BNQK = functional.softmax(score_BNQK.masked_fill(~visible_B1QK, hidden), dim=-1)
        return weight_BNQK @ value_BNKH

    def _merge(self, mixed_BNQH: Tensor) -> Tensor:
        return self.output(mixed_BNQH.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    def content(
        self,
        content_BLD: Tensor,
        key_BNKH: Tensor,
        value_BNKH: Tensor,
        distance_NHR: Tensor,
        visibility: Visibility,
    ) -> Tensor:
        """Attention of the content stream [B, L, D]."""
        by_key_BNLK, by_distance_BNLR = self._scores(content_BLD, key_BNKH, distance_NHR)
        score_BNLK = by_key_BNLK + shift_all(by_distance_BNLR, key_BNKH.shape[2])
        return self._merge(self._mix(score_BNLK, visibility.content_B1LK, value_BNKH))

    def predict(
        self,
        query_BPD: Tensor,
        target_BP: Tensor,
        segment_tokens: int,
        key_BNKH: Tensor,
        value_BNKH: Tensor,
        distance_NHR: Tensor,
        visibility: Visibility,
    ) -> Tensor:
        """Attention of the query stream [B, P, D]; zero where an order's first token sees nothing."""
        by_key_BNPK, by_distance_BNPR = self._scores(query_BPD, key_BNKH, distance_NHR)
        score_BNPK = by_key_BNPK + shift_some(by_distance_BNPR, target_BP, segment_tokens, key_BNKH.shape[2])
        mixed_BNPH = self._mix(score_BNPK, visibility.query_B1PK, value_BNKH)
        return self._merge(mixed_BNPH * visibility.query_sees_any_B1P1)
