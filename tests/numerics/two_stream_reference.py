"""XLNet's two streams written as loops over positions: slow, plain, in float64.

Equations: Yang et al. 2019, sections 2.3 (streams), 2.4 (memory), 2.5 (segment encodings); Dai et al. 2019, section
3.3 (relative positions); Shaw et al. 2018, equations 3 and 4; Su et al. 2021, section 3.2 (rotary). Names follow the
papers; nothing here uses the product's tensor code but its weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.model.config import ModelConfig
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer


@dataclass(frozen=True)
class Place:
    """One token's or prediction's place; memory has rank -1, before every rank of the segment."""

    position: int
    rank: int
    group: int
    document: int | None


@dataclass(frozen=True)
class Key:
    """What may be attended to: a place and the layer's input there."""

    place: Place
    vector: Tensor


def lane_places(places: TokenLayout, lane: int) -> list[Place]:
    """The places of one lane."""
    documents = None if places.document_BX is None else places.document_BX[lane].tolist()
    rows = zip(
        places.position_BX[lane].tolist(),
        places.rank_BX[lane].tolist(),
        places.group_BX[lane].tolist(),
        strict=True,
    )
    return [Place(*row, None if documents is None else documents[number]) for number, row in enumerate(rows)]


def sinusoid(place: int, model_dim: int) -> Tensor:
    """R of one distance, or a position's vector: sines, then cosines."""
    rates = [10_000.0 ** (-2 * index / model_dim) for index in range(model_dim // 2)]
    return torch.tensor(
        [math.sin(place * rate) for rate in rates] + [math.cos(place * rate) for rate in rates],
        dtype=torch.float64,
    )


def turned(vector: Tensor, position: int, base: float) -> Tensor:
    """A head's query or key turned in the planes (i, i + H/2) by position * base^(-2i/H)."""
    half = len(vector) // 2
    result = vector.clone()
    for index in range(half):
        angle = position * base ** (-2 * index / len(vector))
        x, y = vector[index], vector[index + half]
        result[index] = x * math.cos(angle) - y * math.sin(angle)
        result[index + half] = y * math.cos(angle) + x * math.sin(angle)
    return result


def attend(
    model: TwoStreamTransformer, number: int, place: Place, vector: Tensor, keys: Sequence[Key]
) -> Tensor:
    """What one row of layer `number` gathers from the keys it is allowed to see."""
    config, attention = model.config, model.blocks[number].attention
    positions, kind = attention.positions, config.positions.kind

    def heads(flat: Tensor) -> Tensor:
        return flat.view(config.num_heads, config.head_dim)

    q = heads(attention.query(vector))
    gathered = []
    for head in range(config.num_heads):
        scores, values = [], []
        for key in keys:
            k, v = heads(attention.key(key.vector))[head], heads(attention.value(key.vector))[head]
            distance = place.position - key.place.position
            if kind == "transformer_xl":
                r = heads(positions.projection(sinusoid(distance, config.model_dim)))[head]
                score = (q[head] + positions.content_bias_NH[head]) @ k
                score = score + (q[head] + positions.position_bias_NH[head]) @ r
            elif kind == "shaw":
                clip = config.positions.max_distance_tokens
                row = clip - max(-clip, min(clip, distance))
                score, v = q[head] @ (k + positions.key_CH[row]), v + positions.value_CH[row]
            elif kind == "rotary":
                base = config.positions.base
                score = turned(q[head], place.position, base) @ turned(k, key.place.position, base)
            else:
                score = q[head] @ k
            if config.segment_encodings and place.document is not None:
                segments = attention.segments
                s = segments.key_2NH[0 if place.document == key.place.document else 1, head]
                score = score + (q[head] + segments.query_bias_NH[head]) @ s
            scores.append(score / math.sqrt(config.head_dim))
            values.append(v)
        if not keys:
            gathered.append(torch.zeros(config.head_dim, dtype=torch.float64))
            continue
        weights = torch.softmax(torch.stack(scores), dim=0)
        gathered.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
    return attention.output(torch.cat(gathered))


def feed_forward(config: ModelConfig, network: torch.nn.Module, vector: Tensor) -> Tensor:
    """The feed-forward network, written out."""
    if config.activation == "swiglu":
        gate = network.gate.weight @ vector
        return network.down.weight @ (gate / (1 + torch.exp(-gate)) * (network.up.weight @ vector))
    middle = network.up.weight @ vector + network.up.bias
    if config.activation == "relu":
        middle = torch.maximum(middle, torch.zeros_like(middle))
    else:
        middle = middle * 0.5 * (1 + torch.erf(middle / math.sqrt(2)))
    return network.down.weight @ middle + network.down.bias


def normed(norm: torch.nn.LayerNorm, vector: Tensor) -> Tensor:
    """Layer normalisation."""
    centred = vector - vector.mean()
    return centred / torch.sqrt((centred**2).mean() + norm.eps) * norm.weight + norm.bias


def one_layer(
    model: TwoStreamTransformer, number: int, place: Place, vector: Tensor, keys: Sequence[Key]
) -> Tensor:
    """A row one layer up."""
    block, config = model.blocks[number], model.config
    if config.norm == "pre":
        seen = [Key(key.place, normed(block.attention_norm, key.vector)) for key in keys]
        vector = vector + attend(model, number, place, normed(block.attention_norm, vector), seen)
        update = feed_forward(config, block.feed_forward, normed(block.feed_forward_norm, vector))
        return vector + update
    vector = normed(block.attention_norm, vector + attend(model, number, place, vector, keys))
    return normed(block.feed_forward_norm, vector + feed_forward(config, block.feed_forward, vector))


def entering(model: TwoStreamTransformer, vector: Tensor, place: Place) -> Tensor:
    """A row below the first layer."""
    if model.config.positions.kind == "absolute_sinusoidal":
        return vector + sinusoid(place.position, model.config.model_dim)
    if model.config.positions.kind == "absolute_learned":
        return vector + model.input_positions.position_XD[place.position]
    return vector


def reference_logits(
    model: TwoStreamTransformer,
    tokens: Tensor,
    content: TokenLayout,
    targets: TokenLayout,
    memory: SegmentMemory,
    lane: int,
) -> Tensor:
    """Logits [P, V] of one lane."""
    places, target_places = lane_places(content, lane), lane_places(targets, lane)
    past = lane_places(memory.layout(with_documents=content.document_BX is not None), lane)
    h = [
        entering(model, model.embedding.weight[token], place)
        for token, place in zip(tokens[lane].tolist(), places, strict=True)
    ]
    g = [entering(model, model.query_start_D, place) for place in target_places]
    for number in range(model.config.num_layers):
        old = [Key(place, memory.layers_BMD[number][lane, index]) for index, place in enumerate(past)]
        keys = [*old, *(Key(place, vector) for place, vector in zip(places, h, strict=True))]

        def visible(place: Place, itself: bool, keys: Sequence[Key] = keys) -> list[Key]:
            return [
                key
                for key in keys
                if key.place.group == place.group != UNFILLED_GROUP
                and (key.place.rank <= place.rank if itself else key.place.rank < place.rank)
            ]

        g = [
            one_layer(model, number, place, vector, visible(place, itself=False))
            for place, vector in zip(target_places, g, strict=True)
        ]
        h = [
            one_layer(model, number, place, vector, visible(place, itself=True))
            for place, vector in zip(places, h, strict=True)
        ]
    if model.config.norm == "pre":
        g = [normed(model.final_norm, vector) for vector in g]
    weight = model.embedding.weight if model.output is None else model.output.weight
    return torch.stack([weight @ vector + model.output_bias_V for vector in g])
