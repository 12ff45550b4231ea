"""Our model and its peers, at the same size, each with a training step: forward, loss, backward, no optimizer.

Peers are Hugging Face's, with random weights, dropout 0, their weights in float32 as users run them: XLNet in bfloat16
only under autocast (its two streams fail with bfloat16 weights), GPT-2 both ways. Every contender gets its input in its
own form before timing starts; ours computes its masks from ranks inside the step.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, XLNetConfig, XLNetLMHeadModel
from transformers import logging as peers_logging

from benchmarks.model_sizes import Batch, Size
from pretrain.model.config import ModelConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import TwoStreamTransformer

Precision = Literal["float32", "float64", "autocast", "bfloat16"]
"""`autocast`: float32 weights, products in bfloat16. `bfloat16`: bfloat16 weights."""

NORM_EPSILON = 1e-12

peers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]


GPT2_ACTIVATION = "gelu_new"
"""GPT-2's own, which its library computes in separate tensor operations; XLNet and ours use "gelu", which is fused."""


class Contender(ABC):
    """A model with the inputs of its training step."""

    def __init__(self, model: nn.Module, precision: Precision, batch: Batch, device: str) -> None:
        dtype = {"float64": torch.float64, "bfloat16": torch.bfloat16}.get(precision, torch.float32)
        self.model: Any = model.to(device=device, dtype=dtype)
        self.dtype, self.device, self.precision, self.batch = dtype, device, precision, batch

    @abstractmethod
    def loss(self) -> Tensor:
        """Run forward and return the loss; update the memory if the model has one."""

    def gradients(self) -> Tensor:
        """Run forward and backward; return the loss."""
        with self._autocast():
            loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def step(self) -> Tensor:
        """Run a training step without the optimizer; return the loss."""
        loss = self.gradients()
        self.model.zero_grad(set_to_none=True)
        return loss

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "autocast":
            return torch.autocast(self.device, torch.bfloat16)
        return nullcontext()


class Ours(Contender):
    """permcode's two streams with a full memory of one document group; the first step fills it with inputs."""

    def __init__(self, size: Size, precision: Precision, batch: Batch, device: str = "cpu") -> None:
        super().__init__(our_model(size), precision, batch, device)
        self.memory = self.model.empty_memory(size.lanes)
        self.memory.group_BM.zero_()

    def loss(self) -> Tensor:
        batch = self.batch
        content = TokenLayout.contiguous(batch.rank_BL, torch.zeros_like(batch.rank_BL))
        output = self.model(batch.tokens_BL, content, content.at(batch.target_BP), self.memory)
        self.memory = output.memory
        return prediction_loss(output.logits_BPV, batch.labels_BP)


class HFXLNet(Contender):
    """Hugging Face's XLNetLMHeadModel with the same order, predicted tokens and memory."""

    def __init__(self, size: Size, precision: Precision, batch: Batch, device: str = "cpu") -> None:
        super().__init__(xlnet_model(size), precision, batch, device)
        shape = (size.memory_tokens, size.lanes, size.model_dim)
        zeros = torch.zeros(shape, dtype=self.dtype, device=device)
        self.memory = [zeros] * size.num_layers if size.memory_tokens else None
        self.inputs = {
            "input_ids": batch.tokens_BL,
            "perm_mask": batch.perm_mask_BLL(self.dtype),
            "target_mapping": batch.target_mapping_BPL(self.dtype),
            "labels": batch.labels_BP,
        }

    def loss(self) -> Tensor:
        output = self.model(**self.inputs, mems=self.memory, use_mems=self.memory is not None)
        if self.memory is not None:
            self.memory = output.mems
        loss: Tensor = output.loss
        return loss


class HFGPT2(Contender):
    """Hugging Face's GPT2LMHeadModel: predicts every token of the same segment from those before it, no memory."""

    def __init__(
        self,
        size: Size,
        precision: Precision,
        batch: Batch,
        device: str = "cpu",
        activation: str = GPT2_ACTIVATION,
    ) -> None:
        super().__init__(gpt2_model(size, size.segment_tokens, activation), precision, batch, device)

    def loss(self) -> Tensor:
        tokens_BL = self.batch.tokens_BL
        loss: Tensor = self.model(input_ids=tokens_BL, labels=tokens_BL, use_cache=False).loss
        return loss


def our_config(size: Size) -> ModelConfig:
    """Return the configuration of our model that computes the same as XLNet at this size."""
    return ModelConfig(
        num_layers=size.num_layers,
        model_dim=size.model_dim,
        num_heads=size.num_heads,
        head_dim=size.model_dim // size.num_heads,
        ffn_dim=size.ffn_dim,
        memory_tokens=size.memory_tokens,
        dropout=0.0,
        norm_epsilon=NORM_EPSILON,
    )


def our_model(size: Size) -> TwoStreamTransformer:
    """Return our model with random weights."""
    return TwoStreamTransformer(our_config(size), size.vocab_size).train()


def xlnet_model(size: Size) -> nn.Module:
    """Return XLNet with random weights."""
    config = XLNetConfig(
        vocab_size=size.vocab_size,
        d_model=size.model_dim,
        n_layer=size.num_layers,
        n_head=size.num_heads,
        d_inner=size.ffn_dim,
        mem_len=size.memory_tokens,
        layer_norm_eps=NORM_EPSILON,
        dropout=0.0,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: nn.Module = XLNetLMHeadModel(config).train()
    return model


def gpt2_model(size: Size, num_positions: int, activation: str = GPT2_ACTIVATION) -> nn.Module:
    """Return GPT-2 with random weights and sdpa attention."""
    config = GPT2Config(
        vocab_size=size.vocab_size,
        n_positions=num_positions,
        n_embd=size.model_dim,
        n_layer=size.num_layers,
        n_head=size.num_heads,
        n_inner=size.ffn_dim,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="sdpa",  # type: ignore[call-arg]
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: nn.Module = GPT2LMHeadModel(config).train()
    return model
