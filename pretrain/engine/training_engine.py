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
from pretrain.model.transformer import PermutationLoss, PermutationOutput, TwoStreamTransformer


class TupleOutput:
    """Gives DeepSpeed the model's output as a tuple, and all other callers as `PermutationOutput` or `PermutationLoss`.

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

    def _unpack(self, _: Any, __: Any, output: PermutationOutput | PermutationLoss) -> tuple[Any, ...]:
        return (type(output), *vars(output).values())

    def _pack(self, _: Any, __: Any, output: tuple[Any, ...]) -> Any:
        kind, *values = output
        return output if self.kept else kind(*values)


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
        """Return the model's output for one micro-batch."""
        output: PermutationOutput = self._run(tokens_BL, content, targets, memory)
        return output

    def forward_loss(
        self,
        tokens_BL: Tensor,
        content: TokenLayout,
        targets: TokenLayout,
        memory: SegmentMemory,
        wanted_BP: Tensor,
    ) -> PermutationLoss:
        """Return the model's mean loss for one micro-batch, for `accumulate`, and the memory after it."""
        output: PermutationLoss = self._run(tokens_BL, content, targets, memory, wanted_BP)
        return output

    def _run(self, *inputs: Any) -> Any:
        if self._deterministic_sum:  # DeepSpeed sees no forward pass
            return self.module(*inputs)
        self._output.kept = True
        try:
            kind, *values = self._engine(*inputs)
            return kind(*values)
        finally:
            self._output.kept = False
