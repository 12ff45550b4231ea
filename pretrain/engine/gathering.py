"""What DeepSpeed must be told about the model: where its tensors are, and what ZeRO 3 gathers together."""

from typing import Any

from pretrain.model.block import Block
from pretrain.model.transformer import PermutationOutput, TwoStreamTransformer


class TupleOutput:
    """Shows DeepSpeed the model's output as a tuple, and everybody else as the model promises.

    DeepSpeed finds tensors in tuples, lists and dicts only. It hangs on them what it does when their gradients come:
    gather parameters again (ZeRO 3).
    """

    def __init__(self, model: TwoStreamTransformer) -> None:
        """Before DeepSpeed hooks the model."""
        self._model = model
        self.kept = False
        """Whether callers get the tuple too: DeepSpeed's engine is one that wants it."""
        model.register_forward_hook(self._unpack)

    def end(self) -> None:
        """After DeepSpeed has hooked the model."""
        self._model.register_forward_hook(self._pack)

    def _unpack(self, _: Any, __: Any, output: PermutationOutput) -> tuple[Any, ...]:
        return output.logits_BPV, output.memory

    def _pack(self, _: Any, __: Any, output: tuple[Any, ...]) -> Any:
        return output if self.kept else PermutationOutput(*output)


def mark_leaves(model: TwoStreamTransformer) -> None:
    """A layer's parameters are gathered together: Block uses those of its parts outside their own forward."""
    from deepspeed.utils import set_z3_leaf_modules

    set_z3_leaf_modules(model, [Block])
