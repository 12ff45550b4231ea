"""What the networks with a masked Transformer decoder have in common; they differ in how the source is read.

Shapes: B lanes, T target, X predictions, D model, V vocabulary.
"""

from torch import Tensor

from finetune.layers.masked_decoder import DecodedText, Decoder, Memory
from finetune.layers.transformer import Vocabulary
from finetune.systems.writers.from_source import SourceNetwork


class MaskedDecoderNetwork(SourceNetwork):
    """Writes with `decoder` and `vocabulary`, which its children set."""

    decoder: Decoder
    vocabulary: Vocabulary

    def decode(self, encoded: Memory, input_BT: Tensor) -> Tensor:
        """Rows [B, T, D] to be scored."""
        return self.decoder(self.vocabulary.rows(input_BT), encoded)  # type: ignore[no-any-return]

    def logits(self, rows_XD: Tensor) -> Tensor:
        """Scores [X, V]."""
        return self.vocabulary.logits(rows_XD)

    def written(self, encoded: Memory, start_id: int, max_tokens: int) -> DecodedText:
        """Cached decoding."""
        return DecodedText(self.vocabulary, self.decoder, encoded, start_id, max_tokens)
