"""The permutation LM as a writer: a prefix-LM by factorisation order, without new parameters.

The source is context, read in both directions; the target's tokens are predicted one after the other by the query
stream. Pretraining does the same after a cut or in a hole, so this use is not new to the network.

Shapes: B lanes, P predictions, X predictions of all lanes.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn

from data_prep.tokenizer import CodeTokenizer
from finetune.decoding.decode import choose_tokens, ended_by, occurrences, write_in_batches
from finetune.layers.adaptation import depth_in_network
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.writing import WritingData, writing_loss
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.network import NetworkConfig, adapted_network
from finetune.systems.writers.config import WriterConfig
from finetune.systems.writers.prefix_layout import (
    MAX_GAP_TOKENS,
    PrefixBatch,
    PrefixExample,
    PrefixLayout,
    side_by_side,
)
from finetune.systems.writers.sequences import Sequences, Source, Target
from pretrain.inference.completion import Continuation
from pretrain.inference.decoder import Decoder
from pretrain.inference.generation import Generated
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_unknown_length, place_lengths
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import keyed_generator

_SPECIALS_OF_A_TEXT = 3


class PermutationWriterConfig(WriterConfig, NetworkConfig, SystemConfigBase):
    """The settings of a writer that is the pretrained network itself."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = True

    kind: Literal["permutation_lm"] = "permutation_lm"
    layout: Literal["separated", "continued"] = "separated"
    """Whether `<sep>` is between source and target; "continued" if the target continues the source's text, as in
    completion."""

    @property
    def extent_tokens(self) -> int:
        """The number of positions that the longest example needs."""
        written = max(self.target_tokens, self.max_new_tokens)
        return self.source_tokens + written + _SPECIALS_OF_A_TEXT + MAX_GAP_TOKENS

    def needed_positions(self) -> dict[str, int]:
        """See `SystemConfigBase`."""
        return {"extent_tokens": self.extent_tokens} if self.start == "pretrained" else {}

    def build(self, base: Base, data: WritingData, seed: int) -> "PermutationWriter":
        """Build the writer before training. Raises UserError if the texts do not fit the network's positions."""
        limits = f"source_tokens={self.source_tokens} and target_tokens={self.target_tokens}"
        network = adapted_network(self, base, self.extent_tokens, limits, seed)
        return PermutationWriter(self, network, base.tokenizer, data, seed)


class PrefixNetwork(nn.Module):
    """The network with its loss."""

    def __init__(self, network: TwoStreamTransformer, label_smoothing: float) -> None:
        super().__init__()
        self.network, self.label_smoothing = network, label_smoothing

    def predictions(self, batch: PrefixBatch) -> Tensor:
        """Return the scores [X, V] of all predictions, lane after lane."""
        network = self.network
        config, lanes = network.config, len(batch.tokens_BL)
        memory = SegmentMemory.empty(
            config.num_layers, lanes, 0, config.model_dim, network.device, network.dtype
        )
        logits_BPV = network(batch.tokens_BL, batch.content, batch.targets, memory).logits_BPV
        return logits_BPV[batch.is_wanted_BP]  # type: ignore[no-any-return]

    def forward(self, batch: PrefixBatch) -> Tensor:
        """Return the mean loss over all predictions."""
        return writing_loss(self.predictions(batch), batch.wanted_X, self.label_smoothing)


class PrefixLearner:
    """A `Learner` of the prefix-LM."""

    def __init__(
        self,
        module: PrefixNetwork,
        layout: PrefixLayout,
        sources: Sequence[Source],
        targets: Sequence[Target],
        seed: int,
    ) -> None:
        self.module = module
        self._layout, self._sources, self._targets, self._seed = layout, sources, targets, seed
        self.lengths_tokens = [
            source.num_tokens + len(target.tokens_T) + _SPECIALS_OF_A_TEXT
            for source, target in zip(sources, targets, strict=True)
        ]

    def batch(self, indices: Sequence[int], draw: int) -> PrefixBatch:
        """Return the batch of these examples; the gaps of holes are sampled by `draw`."""
        gaps = keyed_generator(self._seed, "hole gaps", draw).integers(1, MAX_GAP_TOKENS + 1, len(indices))
        laid_out: list[PrefixExample] = [
            self._layout.lay_out(self._sources[index], self._targets[index], int(gap))
            for index, gap in zip(indices, gaps, strict=True)
        ]
        network = self.module.network
        config = network.config
        return side_by_side(
            laid_out,
            with_documents=config.segment_encodings,
            device=network.device,
            rounds_extent=not config.positions.kind.startswith("absolute"),
        )

    def depth(self, name: str) -> int:
        """Return the number of layers from a parameter to the output."""
        return depth_in_network(self.module.network.config.num_layers, name.removeprefix("network."))


class PermutationWriter:
    """A `Writer` with the permutation LM."""

    def __init__(
        self,
        config: PermutationWriterConfig,
        network: TwoStreamTransformer,
        tokenizer: CodeTokenizer,
        data: WritingData,
        seed: int,
    ) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._layout = PrefixLayout(tokenizer, separated=config.layout == "separated")
        self._sequences = Sequences(tokenizer, config)
        sources, targets = self._sequences.training(data.train)
        self.learner = PrefixLearner(
            PrefixNetwork(network, config.label_smoothing), self._layout, sources, targets, seed
        )

    @property
    def cut(self) -> dict[str, int]:
        """See `Sequences.cut`."""
        return self._sequences.cut

    def write(self, sources: Sequence[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        """Write one text per source; the module must be in evaluation mode."""
        given, samples = self._sequences.written(sources), occurrences(sources)
        decoder = Decoder(self.learner.module.network, self._config.extent_tokens)
        batch = self._config.decoding.batch
        if any(source.after_T is not None for source in given):
            # A hole is laid out with places of several lengths, and each layout counts in the batch.
            batch = max(1, batch // len(place_lengths(self._config.max_new_tokens)))
        return write_in_batches(
            [source.num_tokens for source in given],
            batch,
            lambda numbers: self._written(
                decoder, [given[number] for number in numbers], [samples[number] for number in numbers]
            ),
            on_progress,
        )

    def _written(self, decoder: Decoder, sources: Sequence[Source], samples: Sequence[int]) -> list[str]:
        found: dict[int, Generated] = {}
        for has_hole, write in ((True, self._fill), (False, self._go_on)):
            numbers = [
                number for number, source in enumerate(sources) if (source.after_T is not None) == has_hole
            ]
            if numbers:
                given = [sources[number] for number in numbers]
                texts = write(decoder, given, [samples[number] for number in numbers])
                found |= dict(zip(numbers, texts, strict=True))
        return self._sequences.texts([found[number] for number in range(len(sources))])

    def _go_on(self, decoder: Decoder, sources: Sequence[Source], samples: Sequence[int]) -> list[Generated]:
        config, prompts = self._config, [self._layout.prompt(source) for source in sources]
        text = Continuation(decoder, prompts, config.max_new_tokens, config.decoding.beam)
        device = decoder.model.device
        rules = ended_by("<eod>", config.decoding)
        return choose_tokens(text, prompts, samples, config.decoding, config.max_new_tokens, rules, device)

    def _fill(self, decoder: Decoder, sources: Sequence[Source], samples: Sequence[int]) -> list[Generated]:
        decoding = self._config.decoding
        found = fill_unknown_length(
            decoder,
            [self._hole(*both) for both in zip(sources, samples, strict=True)],
            decoding.sampling,
            ended_by("<end_hole>", decoding),
            beam=decoding.beam if decoding.beam > 1 else None,
            length_power=decoding.power_of_holes,
        )
        return [fillings[0] for fillings in found]

    def _hole(self, source: Source, sample: int) -> HoleRequest:
        sides = Sides(self._layout.prompt(source), self._layout.suffix(source))
        source_tokens = len(sides.prefix) + len(sides.suffix)
        limit = self._config.decoding.limit_tokens(source_tokens, self._config.max_new_tokens)
        return HoleRequest(sides, limit, sample)
