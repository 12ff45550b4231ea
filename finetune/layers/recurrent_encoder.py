"""The encoder of Bahdanau et al. 2015 (section 3.2): two recurrent networks that read a text from both ends.

Shapes: B lanes, S source, D embedding, R state of one direction, C = 2R annotation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from finetune.layers.shared_factor import SharedFactor
from pretrain.model.precision import at_least_float32


class BidirectionalEncoder(nn.Module):
    """h_j holds the states of both directions at j."""

    def __init__(
        self, kind: str, embedding_dim: int, state_dim: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        network = nn.LSTM if kind == "lstm" else nn.GRU
        self.network = network(
            embedding_dim,
            state_dim,
            num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )

    def forward(self, rows_BSD: Tensor, is_source_BS: Tensor) -> Tensor:
        """Annotations [B, S, C]; zeros in padding, which neither direction reads."""
        network = self.network
        learns = torch.is_grad_enabled() and rows_BSD.device.type == "cpu"
        if learns and isinstance(network, nn.GRU) and network.num_layers == 1:
            return gated_both_ways(network, rows_BSD, is_source_BS)
        length_B = is_source_BS.sum(dim=1).cpu()
        packed = pack_padded_sequence(rows_BSD, length_B, batch_first=True, enforce_sorted=False)
        annotation_BSC, _ = pad_packed_sequence(
            network(packed)[0], batch_first=True, total_length=rows_BSD.shape[1]
        )
        return annotation_BSC


def gated_both_ways(network: nn.GRU, rows_BSD: Tensor, is_source_BS: Tensor) -> Tensor:
    """What a GRU of one layer makes of the rows, with one gradient for all steps, which PyTorch's has not on CPUs.

    Both directions advance together. States are float32 at least.
    """
    state_dim, num_lanes = network.hidden_size, len(rows_BSD)
    mirrored_BS1 = _mirrored(is_source_BS)[..., None]
    from_rows, from_states, row_biases, state_biases = zip(*network.all_weights, strict=True)
    given_2BS3R = torch.stack(
        [
            functional.linear(rows, weight, bias)
            for rows, weight, bias in zip(
                (rows_BSD, _at(rows_BSD, mirrored_BS1)), from_rows, row_biases, strict=True
            )
        ]
    )
    from_state, bias_213R = SharedFactor(torch.stack(from_states).mT), torch.stack(state_biases)[:, None]
    state_2BR = at_least_float32(rows_BSD.new_zeros(2, num_lanes, state_dim))
    states = []
    for given_2B3R in given_2BS3R.unbind(dim=2):
        own_2B3R = from_state(state_2BR.to(rows_BSD.dtype)) + bias_213R
        given_gates, given_proposal = given_2B3R.tensor_split([2 * state_dim], dim=-1)
        own_gates, own_proposal = own_2B3R.tensor_split([2 * state_dim], dim=-1)
        reset_2BR, keep_2BR = torch.sigmoid(given_gates + own_gates).chunk(2, dim=-1)
        proposal_2BR = torch.tanh(given_proposal + reset_2BR * own_proposal)
        state_2BR = torch.lerp(proposal_2BR.to(state_2BR.dtype), state_2BR, keep_2BR.to(state_2BR.dtype))
        states.append(state_2BR)
    forward_BSR, backward_BSR = torch.stack(states, dim=2).to(rows_BSD.dtype)
    both_BSC = torch.cat([forward_BSR, _at(backward_BSR, mirrored_BS1)], dim=-1)
    return both_BSC * is_source_BS[..., None]


def _mirrored(is_source_BS: Tensor) -> Tensor:
    """Where a lane's token stands when its text, without the padding behind it, is read from the end."""
    place_S = torch.arange(is_source_BS.shape[1], device=is_source_BS.device)
    length_B1 = is_source_BS.sum(dim=1, keepdim=True)
    return torch.where(place_S < length_B1, length_B1 - 1 - place_S, place_S)


def _at(rows_BSX: Tensor, place_BS1: Tensor) -> Tensor:
    return rows_BSX.gather(1, place_BS1.expand_as(rows_BSX))
