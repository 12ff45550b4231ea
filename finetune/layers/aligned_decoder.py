"""The aligned recurrent decoder of Bahdanau et al. 2015 (section 3.1, appendix A).

The recurrent state is float32 at least; matrices are multiplied in the weights' type.

Shapes: B lanes, S source, T target, D embedding, R state of one direction, C = 2R annotation, A alignment,
L readout.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from finetune.layers.shared_factor import SharedFactor
from pretrain.model.dropout import Dropout
from pretrain.model.precision import at_least_float32


@dataclass(frozen=True)
class Annotations:
    """The encoded source, for the decoder.

    It has the annotations h [B, S, C], their part U_a h [B, S, A] of the alignment's energies, the mask of the source
    [B, S], and the decoder's first state s_0 [B, R].
    """

    annotation_BSC: Tensor
    energy_BSA: Tensor
    is_source_BS: Tensor
    state_BR: Tensor

    def repeated(self, times: int) -> "Annotations":
        """Return the annotations with every lane `times` times, consecutively."""
        if times == 1:
            return self
        lane_B = torch.arange(len(self.is_source_BS), device=self.is_source_BS.device)
        return self.of_lanes(lane_B.repeat_interleave(times))

    def of_lanes(self, lane_X: Tensor) -> "Annotations":
        """Return the annotations of these lanes only."""
        parts = (self.annotation_BSC, self.energy_BSA, self.is_source_BS, self.state_BR)
        return Annotations(*(part[lane_X] for part in parts))

    def with_state(self, state_BR: Tensor) -> "Annotations":
        """Return the same source with another state of the decoder."""
        return replace(self, state_BR=state_BR)


Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class StepProducts:
    """The matrix products of a step: two of its state, and those of the annotations' weights, of the context, and of
    the state after the reset gate."""

    align_state: Product
    annotations: Product
    from_context: Product
    from_state: Product
    from_reset_state: Product


class AlignedDecoder(nn.Module):
    """s_i = f(s_{i-1}, y_{i-1}, c_i) with c_i a mean of annotations weighted by their alignment with s_{i-1}."""

    def __init__(
        self, embedding_dim: int, state_dim: int, alignment_dim: int, readout_dim: int, dropout: float
    ) -> None:
        super().__init__()
        annotation_dim = 2 * state_dim
        self.state_dim = state_dim
        self.start = nn.Linear(state_dim, state_dim)
        self.align_state = nn.Linear(state_dim, alignment_dim, bias=False)
        self.align_annotation = nn.Linear(annotation_dim, alignment_dim)
        self.align_score = nn.Linear(alignment_dim, 1, bias=False)
        # Rows for the proposal, the update gate z and the reset gate r, in this order.
        self.from_token = nn.Linear(embedding_dim, 3 * state_dim)
        self.from_context = nn.Linear(annotation_dim, 3 * state_dim, bias=False)
        self.from_state = nn.Linear(state_dim, 2 * state_dim, bias=False)
        self.from_reset_state = nn.Linear(state_dim, state_dim, bias=False)
        self.readout_state = nn.Linear(state_dim, 2 * readout_dim)
        self.readout_token = nn.Linear(embedding_dim, 2 * readout_dim, bias=False)
        self.readout_context = nn.Linear(annotation_dim, 2 * readout_dim, bias=False)
        self.dropout = Dropout(dropout)

    def annotations(self, annotation_BSC: Tensor, is_source_BS: Tensor) -> Annotations:
        """Compute what all steps share; s_0 = tanh(W h), of the backward state at the source's first token (A.2.2)."""
        backward_BR = annotation_BSC[:, 0, self.state_dim :]
        state_BR = at_least_float32(torch.tanh(self.start(backward_BR)))
        return Annotations(annotation_BSC, self.align_annotation(annotation_BSC), is_source_BS, state_BR)

    def products(self, source: Annotations) -> StepProducts:
        """Return the products for single steps."""
        return StepProducts(
            self.align_state,
            lambda weight_B1S: weight_B1S @ source.annotation_BSC,
            self.from_context,
            self.from_state,
            self.from_reset_state,
        )

    def _shared_products(self, source: Annotations) -> StepProducts:
        """Return the products for all steps of a text; the backward pass computes one gradient for each matrix."""
        layers = (self.align_state, self.from_context, self.from_state, self.from_reset_state)
        align_state, *others = (SharedFactor(layer.weight.T) for layer in layers)
        return StepProducts(align_state, SharedFactor(source.annotation_BSC), *others)

    def align(self, narrow_BR: Tensor, source: Annotations, products: StepProducts) -> Tensor:
        """Return alpha_ij [B, S] = softmax_j v tanh(W_a s_{i-1} + U_a h_j), in the annotations' type."""
        aligned_BA = products.align_state(narrow_BR)
        energy_BS1 = self.align_score(torch.tanh(aligned_BA[:, None] + source.energy_BSA))
        energy_BS = at_least_float32(energy_BS1[:, :, 0]).masked_fill(~source.is_source_BS, -torch.inf)
        return energy_BS.softmax(dim=-1).to(source.energy_BSA.dtype)

    def step(
        self, state_BR: Tensor, from_token_B3R: Tensor, source: Annotations, products: StepProducts
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return s_i, c_i and alpha_i; `from_token_B3R` is `from_token` of y_{i-1}.

        s_i = (1 - z) s_{i-1} + z s~, s~ = tanh(W y + U (r s_{i-1}) + C c_i) (A.1.1).
        """
        narrow_BR = state_BR.to(source.energy_BSA.dtype)
        weight_BS = self.align(narrow_BR, source, products)
        context_BC = products.annotations(weight_BS[:, None])[:, 0]
        given_B3R = from_token_B3R + products.from_context(context_BC)
        proposed_BR, gates_B2R = given_B3R.tensor_split([self.state_dim], dim=-1)
        update_BR, reset_BR = torch.sigmoid(gates_B2R + products.from_state(narrow_BR)).chunk(2, dim=-1)
        proposal_BR = torch.tanh(proposed_BR + products.from_reset_state(reset_BR * narrow_BR))
        return (
            torch.lerp(state_BR, proposal_BR.to(state_BR.dtype), update_BR.to(state_BR.dtype)),
            context_BC,
            weight_BS,
        )

    def readout(self, state_BTR: Tensor, rows_BTD: Tensor, context_BTC: Tensor) -> Tensor:
        """Return the rows [B, T, L] to be scored: maxout over pairs of U_o s_i + V_o y_{i-1} + C_o c_i (A.2.2).

        It uses s_i, as in equation (4); the appendix has s_{i-1}.
        """
        both = (
            self.readout_state(state_BTR.to(context_BTC.dtype))
            + self.readout_token(rows_BTD)
            + self.readout_context(context_BTC)
        )
        highest: Tensor = self.dropout(both.unflatten(-1, (-1, 2)).amax(dim=-1))
        return highest

    def forward(self, rows_BTD: Tensor, source: Annotations) -> Tensor:
        """Return the rows [B, T, L] after every token of the input; only the recurrence is computed step by step."""
        from_token_BT3R = self.from_token(rows_BTD)
        state_BR, states, contexts = source.state_BR, [], []
        products = self._shared_products(source)
        for from_token_B3R in from_token_BT3R.unbind(dim=1):
            state_BR, context_BC, _ = self.step(state_BR, from_token_B3R, source, products)
            states.append(state_BR)
            contexts.append(context_BC)
        return self.readout(torch.stack(states, dim=1), rows_BTD, torch.stack(contexts, dim=1))


def initialise(module: nn.Module) -> None:
    """Initialise the parameters, following appendix B.1.

    Weights are normal with deviation fan_in ** -0.5, those from state to state orthogonal, biases zero.
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        elif "weight_hh" in name or "from_state" in name or "from_reset_state" in name:
            for part in torch.split(parameter.data, parameter.shape[1]):
                nn.init.orthogonal_(part)
        else:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
