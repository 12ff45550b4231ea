"""The engine of pretraining: the two-stream model under DeepSpeed.

Shapes: B lanes, L segment.
"""

from typing import Any

from torch import Tensor

from pretrain.config import PretrainConfig
from pretrain.engine.deepspeed_config import EngineSettings
from pretrain.engine.module_engine import ModuleEngine
from pretrain.engine.optimizer import adamw
from pretrain.model.block import Block
from pretrain.model.layout import TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import PermutationOutput, TwoStreamTransformer


class TupleOutput:
    """Gives DeepSpeed the model's output as a tuple, and all other callers as `PermutationOutput`.

    DeepSpeed finds tensors in tuples, lists and dicts only. On these tensors it hooks what it does when their gradients
    come: gather parameters again (ZeRO 3).
    """

    def __init__(self, model: TwoStreamTransformer) -> None:
        """Register the first hook; must be called before DeepSpeed hooks the model."""
        self._model = model
        self.kept = False
        """Whether callers get the tuple too, as DeepSpeed's engine needs it."""
        model.register_forward_hook(self._unpack)

    def end(self) -> None:
        """Register the second hook; must be called after DeepSpeed has hooked the model."""
        self._model.register_forward_hook(self._pack)

    def _unpack(self, _: Any, __: Any, output: PermutationOutput) -> tuple[Any, ...]:
        return output.logits_BPV, output.memory

    def _pack(self, _: Any, __: Any, output: tuple[Any, ...]) -> Any:
        return output if self.kept else PermutationOutput(*output)


def mark_leaves(model: TwoStreamTransformer) -> None:
    """Let ZeRO 3 gather a layer's parameters together: Block uses those of its parts outside their own forward."""
    from deepspeed.utils import set_z3_leaf_modules

    set_z3_leaf_modules(model, [Block])


class TrainingEngine(ModuleEngine):
    """The two-stream model with its optimizer, partitioned over the workers by the ZeRO stage."""

    def __init__(self, model: TwoStreamTransformer, config: PretrainConfig, world_size: int) -> None:
        self.module = model
        if config.zero_stage == 3:
            mark_leaves(model)
        self._output = TupleOutput(model)
        # On CPUs the rounding of torch's fused Adam, which is four times as fast, depends on an element's index.
        fused = model.device.type == "cuda" or not config.deterministic
        optimizer = adamw(model, config.optimizer, fused=fused)
        super().__init__(model, optimizer, EngineSettings.of_pretraining(config), world_size)
        self._output.end()

    def forward(
        self, tokens_BL: Tensor, content: TokenLayout, targets: TokenLayout, memory: SegmentMemory
    ) -> PermutationOutput:
        """Return the model's output for one micro-batch, for `accumulate`."""
        if self._deterministic_sum:  # DeepSpeed sees no forward pass
            output: PermutationOutput = self.module(tokens_BL, content, targets, memory)
            return output
        self._output.kept = True
        try:
            return PermutationOutput(*self._engine(tokens_BL, content, targets, memory))
        finally:
            self._output.kept = False
