"""A text with empty places, whose keys and values are cached in one lane; the places can be filled in any order.

Shapes: T places of the text, filled or empty; V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.inference.decoder import Decoder, check_positions, check_room
from pretrain.inference.history import read_from_start
from pretrain.inference.hole import laid_out
from pretrain.inference.session import DecodingSession


class OpenText:
    """A text of tokens, or EMPTY, in `row_T`; the first `history_tokens` are read as the model's memory.

    Raises UserError when the text does not fit the model's absolute positions or the free memory.
    """

    def __init__(self, decoder: Decoder, row_T: NDArray[np.int64], history_tokens: int) -> None:
        check_positions(decoder, len(row_T))
        self.row_T = row_T
        kept = min(history_tokens, decoder.memory_tokens)
        self._first_place = history_tokens - kept
        num_columns = len(row_T) - self._first_place
        check_room(decoder, 1, num_columns)
        self.session = DecodingSession(decoder, 1, num_columns)
        context = laid_out(row_T, np.zeros(0, dtype=np.int64), [0], decoder.model.device)
        memory = read_from_start(decoder, context.part(0, history_tokens))
        if memory is not None:
            self.session.copy_from(memory, 0, 0)
        self.session.encode(context.part(history_tokens, len(row_T)))

    def column(self, place: int) -> int:
        """Return the session's column of a place that is not in the history."""
        return place - self._first_place

    def predict(self, places: Sequence[int]) -> Tensor:
        """Return the logits [number of places, V] of empty places, none of which sees another."""
        columns = torch.tensor([[self.column(place) for place in places]], device=self.session.model.device)
        nothing = columns[:, :0]
        return self.session.step(nothing, nothing, nothing, columns, torch.zeros_like(columns))[0]
