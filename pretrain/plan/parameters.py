"""The number of a model's parameters, part by part, from its config alone."""

from dataclasses import dataclass, fields

from pretrain.model.config import AbsoluteLearnedPositions, ModelConfig, ShawPositions, TransformerXLPositions


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters by part, each parameter counted once."""

    token_embedding: int
    query_start: int
    attention_projections: int
    positions: int
    segment_encodings: int
    feed_forward: int
    norms: int
    output_bias: int
    untied_output: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.by_part().values())

    def by_part(self) -> dict[str, int]:
        """Return the parts with their names, in the order of the forward pass."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def count_parameters(config: ModelConfig, vocab_size: int) -> Parameters:
    """Count the parameters of `TwoStreamTransformer(config, vocab_size)`."""
    model_dim, inner_dim, layers = config.model_dim, config.num_heads * config.head_dim, config.num_layers
    norm = 2 * model_dim
    return Parameters(
        token_embedding=vocab_size * model_dim,
        query_start=model_dim,
        attention_projections=layers * 4 * model_dim * inner_dim,
        positions=_positions(config),
        segment_encodings=layers * 3 * inner_dim if config.segment_encodings else 0,
        feed_forward=layers * feed_forward_parameters(config),
        norms=layers * 2 * norm + (norm if config.norm == "pre" else 0),
        output_bias=vocab_size,
        untied_output=0 if config.tie_embeddings else vocab_size * model_dim,
    )


def feed_forward_parameters(config: ModelConfig) -> int:
    """Count the parameters of one layer's feed-forward network."""
    if config.activation == "swiglu":
        return 3 * config.model_dim * config.ffn_dim
    return 2 * config.model_dim * config.ffn_dim + config.ffn_dim + config.model_dim


def _positions(config: ModelConfig) -> int:
    """Count the position parameters of all layers and the input."""
    inner_dim = config.num_heads * config.head_dim
    match config.positions:
        case TransformerXLPositions():
            return config.num_layers * (config.model_dim * inner_dim + 2 * inner_dim)
        case ShawPositions(max_distance_tokens=clip):
            return config.num_layers * 2 * (2 * clip + 1) * config.head_dim
        case AbsoluteLearnedPositions(max_positions=max_positions):
            return max_positions * config.model_dim
        case _:
            return 0
