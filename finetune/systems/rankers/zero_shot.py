"""The pretrained model's own vectors, without any training: what pretraining alone finds."""

from typing import ClassVar, Literal

from finetune.modalities.base import ModalityName
from finetune.modalities.ranking import RankingData
from finetune.systems.base import Base
from finetune.systems.rankers.bi_encoder import BiEncoder, BiEncoderConfig, Contrast
from finetune.systems.text_encoder import Cutter, TextEncoder, check_length


class ZeroShotEncoderConfig(BiEncoderConfig):
    """As a bi-encoder; what concerns training plays no part."""

    modality: ClassVar[ModalityName] = "rank"
    learns: ClassVar[bool] = False

    kind: Literal["zero_shot_encoder"] = "zero_shot_encoder"  # type: ignore[assignment]

    def build(self, base: Base, data: RankingData, seed: int) -> "BiEncoder":
        """A bi-encoder with nothing to train. Raises UserError when the model cannot place texts that long."""
        check_length(self, base, self.query_tokens, "query_tokens")
        check_length(self, base, self.candidate_tokens, "candidate_tokens")
        module = Contrast(TextEncoder.build(self, base, seed), self.temperature, self.symmetric).eval()
        return BiEncoder(self, module, Cutter(base.tokenizer, base.device), None)
