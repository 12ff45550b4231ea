"""What an encoding of positions does inside every layer; the base class does nothing.

Shapes: B lanes, X rows or keys, Q rows, N heads, H head dim, D model, R distances.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from pretrain.model.places import DistanceSpan


@dataclass(frozen=True)
class QueryBiases:
    """Added to the queries that meet keys, and to those that meet `distance_keys`; None where nothing is."""

    content_NH: Tensor | None
    distance_NH: Tensor | None


class LayerPositions(nn.Module):
    """One layer's part of an encoding. Absolute encodings, which act on the input only, need no more than this."""

    def placed(self, heads_BXNH: Tensor, position_BX: Tensor) -> Tensor:
        """Queries or keys with their own position worked in."""
        return heads_BXNH

    def biases(self) -> QueryBiases:
        """What is added to all queries."""
        return QueryBiases(None, None)

    def distance_keys(self, span: DistanceSpan, table_RD: Tensor | None) -> Tensor | None:
        """A key [N, R, H] for every distance of the span; None where distances have none."""
        return None

    def distance_values(self, span: DistanceSpan) -> Tensor | None:
        """A value [R, H] for every distance of the span, for all heads; None where distances have none."""
        return None
