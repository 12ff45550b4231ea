"""The encoder of Bahdanau et al. 2015 (section 3.2, appendix A.1): one recurrent network for each direction.

Shapes: B lanes, S source, D embedding, R state of one direction, C = 2R annotation; a 2 is the two directions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from finetune.layers.shared_factor import SharedFactor
from pretrain.model.dropout import Dropout
from pretrain.model.precision import at_least_float32


class BidirectionalEncoder(nn.Module):
    """An encoder whose annotation h_j contains the states of both directions at j.

    `kind` is "gru", the paper's gated unit, or "lstm", PyTorch's. With more than one layer, each reads the annotations
    of the one below, after dropout.
    """

    def __init__(
        self, kind: str, embedding_dim: int, state_dim: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.network: nn.LSTM | None = None
        self.gated = nn.ModuleList()
        if kind == "lstm":
            between = dropout if num_layers > 1 else 0.0
            self.network = nn.LSTM(
                embedding_dim, state_dim, num_layers, batch_first=True, bidirectional=True, dropout=between
            )
        else:
            widths = [embedding_dim, *[2 * state_dim] * (num_layers - 1)]
            self.gated.extend(GatedLayer(width, state_dim) for width in widths)
        self.dropout = Dropout(dropout)

    def forward(self, rows_BSD: Tensor, is_source_BS: Tensor) -> Tensor:
        """Return the annotations [B, S, C]; zeros at padding, which changes no annotation.

        An LSTM needs the padding after the text; the gated unit accepts it anywhere.
        """
        if self.network is not None:
            length_B = is_source_BS.sum(dim=1).cpu()
            packed = pack_padded_sequence(rows_BSD, length_B, batch_first=True, enforce_sorted=False)
            with _lstm_of_pytorch():
                states, _ = self.network(packed)
            annotation_BSC, _ = pad_packed_sequence(states, batch_first=True, total_length=rows_BSD.shape[1])
            return annotation_BSC
        for number, layer in enumerate(self.gated):
            rows_BSD = layer(self.dropout(rows_BSD) if number else rows_BSD, is_source_BS)
        return rows_BSD


class GatedLayer(nn.Module):
    """A gated unit for each direction, both advancing together.

    From a state h_0 of zeros (A.2.1), with o for products per element,

        z_i = sigmoid(W_z x_i + U_z h_{i-1} + b_z)
        r_i = sigmoid(W_r x_i + U_r h_{i-1} + b_r)
        g_i = tanh(W x_i + U (r_i o h_{i-1}) + b)
        h_i = (1 - z_i) o h_{i-1} + z_i o g_i        (A.1.1, A.1.2)

    The paper leaves out the biases "to make the equations uncluttered". PyTorch's GRU is another unit: it has
    r_i o (U h_{i-1}) and two biases, and its update gate is 1 - z_i.
    """

    def __init__(self, input_dim: int, state_dim: int) -> None:
        super().__init__()
        self.state_dim = state_dim
        # Rows: for each direction the proposal g, the update gate z and the reset gate r, in this order.
        self.from_row = nn.Linear(input_dim, 2 * 3 * state_dim)
        self.from_state = nn.Linear(state_dim, 2 * 2 * state_dim, bias=False)
        self.from_reset_state = nn.Linear(state_dim, 2 * state_dim, bias=False)

    def forward(self, rows_BSD: Tensor, is_source_BS: Tensor) -> Tensor:
        """Return the annotations [B, S, C].

        States are float32 at least, products have the rows' type, and each matrix has one gradient for all steps.
        """
        state_dim, narrow = self.state_dim, rows_BSD.dtype
        given_S2B3R = _both_ways(self.from_row(rows_BSD).unflatten(-1, (2, 3 * state_dim)))
        is_source_S2B = _both_ways(is_source_BS[:, :, None].expand(-1, -1, 2))
        proposed_S2BR, update_S2BR, reset_S2BR = given_S2B3R.chunk(3, dim=-1)
        # A closed update gate keeps the state unchanged over padding.
        update_S2BR = update_S2BR.masked_fill(~is_source_S2B[..., None], -torch.inf)
        gates_S2B2R = torch.cat([update_S2BR, reset_S2BR], dim=-1)
        from_state = SharedFactor(self.from_state.weight.view(2, -1, state_dim).mT)
        from_reset_state = SharedFactor(self.from_reset_state.weight.view(2, -1, state_dim).mT)
        state_2BR = at_least_float32(rows_BSD.new_zeros(2, len(rows_BSD), state_dim))
        states = []
        for proposed_2BR, gates_2B2R in zip(proposed_S2BR.unbind(), gates_S2B2R.unbind(), strict=True):
            narrow_2BR = state_2BR.to(narrow)
            update_2BR, reset_2BR = torch.sigmoid(gates_2B2R + from_state(narrow_2BR)).chunk(2, dim=-1)
            proposal_2BR = torch.tanh(proposed_2BR + from_reset_state(reset_2BR * narrow_2BR))
            state_2BR = torch.lerp(
                state_2BR, proposal_2BR.to(state_2BR.dtype), update_2BR.to(state_2BR.dtype)
            )
            states.append(state_2BR)
        forward_SBR, backward_SBR = torch.stack(states).to(narrow).unbind(dim=1)
        annotation_SBC = torch.cat([forward_SBR, backward_SBR.flip(0)], dim=-1)
        return annotation_SBC.transpose(0, 1) * is_source_BS[..., None]


@contextmanager
def _lstm_of_pytorch() -> Iterator[None]:
    """Use PyTorch's LSTM instead of oneDNN's, which fails if the processor has no products of bfloat16."""
    onednn: Any = torch.backends.mkldnn
    before = onednn.enabled
    onednn.enabled = before and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    try:
        yield
    finally:
        onednn.enabled = before


def _both_ways(given_BS2X: Tensor) -> Tensor:
    """Return [S, 2, B, ...]: steps first, those of the second direction from the last place to the first."""
    forward_SBX, backward_SBX = given_BS2X.transpose(0, 1).unbind(dim=2)
    return torch.stack([forward_SBX, backward_SBX.flip(0)], dim=1)
