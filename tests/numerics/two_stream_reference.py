"""XLNet's two streams written as loops over positions: slow, plain, in float64.

Equations: Yang et al. 2019, section 2.3 (streams), section 2.4 (memory), and Dai et al. 2019, section 3.3
(relative positions). Names follow the papers; nothing here uses the product's tensor code but its weights.
"""

import math

import torch
from torch import Tensor

from pretrain.model.memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer


def sinusoid(distance: int, model_dim: int) -> Tensor:
    """R of one distance: sines, then cosines."""
    rates = [10_000.0 ** (-2 * index / model_dim) for index in range(model_dim // 2)]
    return torch.tensor(
        [math.sin(distance * rate) for rate in rates] + [math.cos(distance * rate) for rate in rates],
        dtype=torch.float64,
    )


def reference_logits(
    model: TwoStreamTransformer,
    tokens: Tensor,
    rank: Tensor,
    group: Tensor,
    targets: Tensor,
    memory: SegmentMemory,
    lane: int,
) -> Tensor:
    """Logits [P, V] of one lane."""
    config = model.config
    length, past = tokens.shape[1], memory.memory_tokens
    tokens_, rank_, group_ = tokens[lane].tolist(), rank[lane].tolist(), group[lane].tolist()
    past_group = memory.group_BM[lane].tolist()
    content = [model.embedding.weight[token] for token in tokens_]
    query = {position: model.query_start_D for position in targets[lane].tolist()}
    for number, block in enumerate(model.blocks):
        old = [memory.layers_BMD[number][lane, index] for index in range(past)]

        def attend(
            position: int, vector: Tensor, sees_itself: bool, old=old, content=content, block=block
        ) -> Tensor:
            attention = block.attention
            keys: list[tuple[int, Tensor]] = []
            for index, key in enumerate(old):
                if past_group[index] == group_[position]:
                    keys.append((index - past, key))
            for other in range(length):
                allowed = rank_[other] <= rank_[position] if sees_itself else rank_[other] < rank_[position]
                if allowed and group_[other] == group_[position]:
                    keys.append((other, content[other]))
            norm = block.attention_norm if block.pre_norm else (lambda value: value)
            heads = []
            q = attention.query(norm(vector)).view(config.num_heads, config.head_dim)
            for head in range(config.num_heads):
                if not keys:
                    heads.append(torch.zeros(config.head_dim, dtype=torch.float64))
                    continue
                scores, values = [], []
                for place, key in keys:
                    k = attention.key(norm(key)).view(config.num_heads, config.head_dim)[head]
                    r = attention.positions.projection(sinusoid(position - place, config.model_dim))
                    r = r.view(config.num_heads, config.head_dim)[head]
                    by_content = (q[head] + attention.positions.content_bias_NH[head]) @ k
                    by_position = (q[head] + attention.positions.position_bias_NH[head]) @ r
                    scores.append((by_content + by_position) / math.sqrt(config.head_dim))
                    values.append(attention.value(norm(key)).view(config.num_heads, config.head_dim)[head])
                weights = torch.softmax(torch.stack(scores), dim=0)
                heads.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
            return attention.output(torch.cat(heads))

        def finish(vector: Tensor, attended: Tensor, block=block) -> Tensor:
            if block.pre_norm:
                vector = vector + attended
                return vector + block.feed_forward(block.feed_forward_norm(vector))
            vector = block.attention_norm(vector + attended)
            return block.feed_forward_norm(vector + block.feed_forward(vector))

        new_query = {
            position: finish(vector, attend(position, vector, False)) for position, vector in query.items()
        }
        content = [finish(vector, attend(position, vector, True)) for position, vector in enumerate(content)]
        query = new_query
    rows = [
        model.embedding.weight @ model.final_norm(query[position]) + model.output_bias_V for position in query
    ]
    return torch.stack(rows)
