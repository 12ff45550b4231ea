"""Fills holes with the pretrained model as it is, its lengths chosen by the model, fixed, or given.

Pretraining fills holes, so nothing is trained for the task. How a hole's length is known decides much of the result, so
there are three ways:

- own: the model ends the hole itself (`pretrain.inference.infilling.fill_unknown_length`);
- fixed: every hole has the same number of tokens, as in models that fill a canvas of constant size;
- given: every hole has the reference's number of tokens. No user has that; it bounds what lengths can cost.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from cluster.errors import UserError
from finetune.decoding.config import DecodingConfig
from finetune.decoding.decode import ended_by, occurrences, write_in_batches
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.writing import Pair, WritingData
from finetune.systems.base import Base, SystemConfigBase
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import (
    HoleRequest,
    fill_known_length,
    fill_unknown_length,
    place_lengths,
)
from pretrain.inference.language_model import PermutationLM


class ZeroShotInfillerConfig(SystemConfigBase):
    """The settings of filling holes without training. `decoding` is as for the other writers."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = False

    kind: Literal["zero_shot_infiller"] = "zero_shot_infiller"
    length: Literal["own", "fixed", "given"] = "own"
    fixed_tokens: PositiveInt | None = None
    """The number of tokens of every hole, for `length: fixed`."""
    max_hole_tokens: PositiveInt = 64
    """The most tokens that a hole is filled with; never more than half a segment of the model."""
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _fixed_has_a_length(self) -> "ZeroShotInfillerConfig":
        if (self.length == "fixed") != (self.fixed_tokens is not None):
            raise ValueError("fixed_tokens goes with length=fixed, and only with it")
        return self

    def build(self, base: Base, data: WritingData, seed: int) -> "ZeroShotInfiller":
        """Build the writer. Raises UserError for a model that was not trained on such holes."""
        return ZeroShotInfiller(self, base, seed)


class ZeroShotInfiller:
    """A `Writer` that is not trained; with `length: given` an `OracleWriter`."""

    learner = None

    def __init__(self, config: ZeroShotInfillerConfig, base: Base, seed: int) -> None:
        objective = base.weights.objective() if base.weights is not None else None
        self.module = base.network("pretrained", seed).eval()
        segment_tokens = base.description.segment_tokens
        self._config = config
        self._model = PermutationLM(self.module, base.tokenizer, segment_tokens, objective)
        self._model.check_can_fill(all_known=config.length != "own")
        self._most_tokens = min(config.max_hole_tokens, max(1, segment_tokens // 2))
        self._reference_tokens: dict[tuple[str, str | None], int] = {}
        self.cut = {"written_texts": 0}

    def see_references(self, items: Sequence[Pair]) -> None:
        """Note the lengths of the items' first references."""
        if self._config.length == "given":
            tokens = self._model.tokenizer.encode_batch([one.references[0] for one in items])
            self._reference_tokens = {
                (one.source, one.suffix): len(tokens_T) for one, tokens_T in zip(items, tokens, strict=True)
            }

    def write(self, sources: Sequence[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        """Write one text per (source, suffix). Raises UserError for a length that should be given and is not."""
        batch, samples = self._config.decoding.batch, occurrences(sources)
        if self._config.length == "own":
            # A hole is laid out with places of several lengths, and each layout counts in the batch.
            batch = max(1, batch // len(place_lengths(self._most_tokens)))
        holes = [self._hole(*both) for both in zip(sources, samples, strict=True)]
        self.cut["written_texts"] = 0
        return write_in_batches(
            [len(one.sides.prefix) + len(one.sides.suffix) for one in holes],
            batch,
            lambda numbers: self._filled([holes[number] for number in numbers]),
            on_progress,
        )

    def _hole(self, source: tuple[str, str | None], sample: int) -> HoleRequest:
        sides = Sides(self._model.opened(source[0]), self._model.closed(source[1] or ""))
        match self._config.length:
            case "own":
                num_tokens = self._most_tokens
            case "fixed":
                assert self._config.fixed_tokens is not None
                num_tokens = self._config.fixed_tokens
            case "given":
                if source not in self._reference_tokens:
                    raise UserError(
                        "zero_shot_infiller: length=given is for texts whose reference is known: use length=own"
                    )
                num_tokens = max(1, self._reference_tokens[source])
        return HoleRequest(sides, min(num_tokens, self._most_tokens), sample)

    def _filled(self, holes: Sequence[HoleRequest]) -> list[str]:
        decoding = self._config.decoding
        rules, beam = ended_by("<end_hole>", decoding), decoding.beam if decoding.beam > 1 else None
        if self._config.length == "own":
            power = decoding.power_of_holes
            found = fill_unknown_length(
                self._model.decoder, holes, decoding.sampling, rules, beam=beam, length_power=power
            )
        else:
            found = fill_known_length(self._model.decoder, holes, decoding.sampling, rules, beam=beam)
        fillings = [row[0] for row in found]
        self.cut["written_texts"] += sum(one.forced for one in fillings)
        return [self._model.tokenizer.decode(one.tokens) for one in fillings]
