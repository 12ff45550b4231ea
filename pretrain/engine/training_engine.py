"""The engine of pretraining: the two-stream model under DeepSpeed.

Shapes: B lanes, L segment.
"""

from torch import Tensor

from pretrain.config import PretrainConfig
from pretrain.engine.gathering import TupleOutput, mark_leaves
from pretrain.engine.module_engine import ModuleEngine
from pretrain.engine.optimizer import adamw
from pretrain.engine.settings import EngineSettings
from pretrain.model.memory import SegmentMemory
from pretrain.model.places import Places
from pretrain.model.transformer import PermutationOutput, TwoStreamTransformer


class TrainingEngine(ModuleEngine):
    """A model with its optimizer, spread over the workers as the ZeRO stage says; the process group must stand."""

    def __init__(self, model: TwoStreamTransformer, config: PretrainConfig, world_size: int) -> None:
        self.module = model
        if config.zero_stage == 3:
            mark_leaves(model)
        self._output = TupleOutput(model)
        # On CPUs torch's fused Adam, four times as fast, rounds by an element's place in its tensor.
        fused = model.device.type == "cuda" or not config.deterministic
        optimizer = adamw(model, config.optimizer, fused=fused)
        super().__init__(model, optimizer, EngineSettings.of_pretraining(config), world_size)
        self._output.end()

    def forward(
        self, tokens_BL: Tensor, content: Places, targets: Places, memory: SegmentMemory
    ) -> PermutationOutput:
        """The model's output for one micro-batch, ready for `accumulate`."""
        if self._canonical:  # DeepSpeed sees no forward pass
            output: PermutationOutput = self.module(tokens_BL, content, targets, memory)
            return output
        self._output.kept = True
        try:
            return PermutationOutput(*self._engine(tokens_BL, content, targets, memory))
        finally:
            self._output.kept = False
