"""The pretrained model's own vectors, without any training: what pretraining alone finds."""

from typing import Literal

from finetune.examples import RankingData
from finetune.layers.reading import Cutter, TextEncoder, check_length
from finetune.systems.base import Base
from finetune.systems.rankers.bi_encoder import BiEncoder, BiEncoderConfig, Contrast


class ZeroShotEncoderConfig(BiEncoderConfig):
    """As a bi-encoder; what concerns training plays no part."""

    kind: Literal["zero_shot_encoder"] = "zero_shot_encoder"  # type: ignore[assignment]


def build(config: ZeroShotEncoderConfig, base: Base, data: RankingData, seed: int) -> BiEncoder:
    """A bi-encoder with nothing to train. Raises UserError when the model cannot place texts that long."""
    check_length(config, base, config.query_tokens, "query_tokens")
    check_length(config, base, config.candidate_tokens, "candidate_tokens")
    module = Contrast(TextEncoder.build(config, base, seed), config.temperature, config.symmetric).eval()
    return BiEncoder(config, module, Cutter(base.tokenizer, base.device), None)
