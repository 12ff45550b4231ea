"""The floating-point operations of a training step, part by part, from the config alone.

Counted as is usual: the multiplications and additions of matrix products (two per pair), nothing else. Formulas follow
Yang et al. 2019 (sections 2.3 to 2.5) as `pretrain/model` computes them: queries on predicted rows only, distances
projected once for all lanes of a forward pass, no content rows in the last layer.

Letters: B lanes of a forward pass, L segment, E its positions (L and the longest gap among them), M memory, K = M + L
keys, P predicted, R = M + 2E - 1 distances, D model, I = heads x head dimension, F feed-forward, V vocabulary.
"""

from dataclasses import dataclass, fields

from pretrain.model.config import ModelConfig, Recompute, ShawPositions, TransformerXLPositions


@dataclass(frozen=True)
class Flops:
    """FLOPs of one forward pass over B lanes, by part; the last two fields are contained in others."""

    content_stream: int
    """Projections, attention and feed-forward of the L content rows, and their keys and values."""
    query_stream: int
    """Projections, attention and feed-forward of the P predicted rows."""
    memory_keys_values: int
    distance_products: int
    """Rows times distances, of both streams."""
    distance_projection: int
    """Transformer-XL's keys of distances: once per forward pass, however many lanes it has."""
    segment_encodings: int
    output_layer: int
    not_of_attention: int
    """FLOPs among these of the layers' feed-forward networks and of attention's last product, which is not repeated."""
    of_constants: int
    """FLOPs among these of products with tensors without gradient: sinusoids, and memory without a norm before it."""

    @property
    def forward(self) -> int:
        """The sum of all parts."""
        return sum(self.by_part().values())

    def recomputed(self, recompute: Recompute) -> int:
        """Return the FLOPs of the forward pass that the backward pass repeats."""
        layers = self.forward - self.output_layer
        return {"none": 0, "attention": layers - self.not_of_attention, "layers": layers}[recompute]

    def training(self, recompute: Recompute = "none") -> int:
        """Return the FLOPs of a forward and backward pass, with those that are repeated.

        The backward pass of a product is two products; with a constant it is one.
        """
        return 3 * self.forward - self.of_constants + self.recomputed(recompute)

    def by_part(self) -> dict[str, int]:
        """Return the parts with their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)[:-2]}


def forward_flops(
    config: ModelConfig,
    lanes: int,
    segment_tokens: int,
    num_targets: int,
    vocab_size: int,
    extent_tokens: int | None = None,
) -> Flops:
    """Return the FLOPs of one forward pass of a `TwoStreamTransformer`: B lanes of L tokens, P of them predicted.

    Without `extent_tokens` positions have no gaps: E = L.
    """
    layers, inner_dim = config.num_layers, config.num_heads * config.head_dim
    keys = config.memory_tokens + segment_tokens
    num_distances = config.memory_tokens + 2 * (extent_tokens or segment_tokens) - 1
    content_rows = (layers - 1) * lanes * segment_tokens
    query_rows = layers * lanes * num_targets
    per_key = 2 * 2 * config.model_dim * inner_dim
    products = 3 if config.activation == "swiglu" else 2
    # Query and output projection, feed-forward network; scores and mixture.
    feed_forward_per_row = products * 2 * config.model_dim * config.ffn_dim
    per_row = 2 * 2 * config.model_dim * inner_dim + feed_forward_per_row + 2 * 2 * keys * inner_dim
    relative = isinstance(config.positions, TransformerXLPositions)
    per_row_and_distance = (
        2 * inner_dim if relative else 4 * inner_dim if isinstance(config.positions, ShawPositions) else 0
    )
    rows = content_rows + query_rows
    memory_keys_values = layers * lanes * config.memory_tokens * per_key
    distance_projection = layers * num_distances * 2 * config.model_dim * inner_dim if relative else 0
    return Flops(
        content_stream=content_rows * per_row + layers * lanes * segment_tokens * per_key,
        query_stream=query_rows * per_row,
        memory_keys_values=memory_keys_values,
        distance_products=rows * num_distances * per_row_and_distance,
        distance_projection=distance_projection,
        segment_encodings=rows * 2 * 2 * inner_dim if config.segment_encodings else 0,
        output_layer=lanes * num_targets * 2 * config.model_dim * vocab_size,
        not_of_attention=rows * (feed_forward_per_row + 2 * config.model_dim * inner_dim),
        of_constants=distance_projection + (memory_keys_values if config.norm == "post" else 0),
    )


def training_flops_per_step(
    config: ModelConfig,
    lanes: int,
    segment_tokens: int,
    num_targets: int,
    vocab_size: int,
    micro_batch_lanes: int | None = None,
    recompute: Recompute = "none",
    extent_tokens: int | None = None,
) -> int:
    """Return the FLOPs of one step over `lanes` lanes, in forward passes of `micro_batch_lanes` (default: one pass).

    For a share of peak that compares models (MFU), leave `recompute` out: what is computed twice is
    not counted twice. Raises ValueError for lanes that are no multiple of `micro_batch_lanes`.
    """
    per_pass = micro_batch_lanes or lanes
    if lanes % per_pass:
        raise ValueError(f"lanes={lanes} must be a multiple of micro_batch_lanes={per_pass}")
    flops = forward_flops(config, per_pass, segment_tokens, num_targets, vocab_size, extent_tokens)
    return lanes // per_pass * flops.training(recompute)
