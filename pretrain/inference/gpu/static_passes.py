"""Passes of a decoding session as CUDA graphs: one launch each, instead of one for every operator of every layer.

A graph repeats the same operators on the same memory. So rows, columns and ranks are copied into tensors that stay, and
the columns in use are rounded up, with those that are empty hidden.

Shapes: B lanes, T written tokens, P predicted columns, Q = T + P rows, V vocabulary.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cluster.errors import first_line
from pretrain.inference.pass_layout import PassRows

if TYPE_CHECKING:
    from pretrain.inference.session import DecodingSession

_COLUMNS = 256
"""The columns in use are rounded up to a multiple of this: each number has a graph of its own."""
_PASSES_BEFORE = 2
"""Passes of a shape before it is recorded: they compile kernels, and recording takes as long as a few passes."""
_log = logging.getLogger(__name__)


def can_record(device: torch.device) -> bool:
    """Return whether passes on `device` can be recorded."""
    return device.type == "cuda"


def record(body: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a call that repeats `body` as a CUDA graph; `body` has run before. Raises RuntimeError if that fails."""
    graph = torch.cuda.CUDAGraph()
    # Other threads of a server may allocate meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = body()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


class StaticPasses:
    """The recorded passes of a session, whose lanes, caches and offsets must stay in place."""

    def __init__(self, session: "DecodingSession") -> None:
        self._session = session
        self._num_passes: Counter[tuple[int, ...]] = Counter()
        self._recorded: dict[tuple[int, ...], _StaticPass] = {}
        self._is_possible = True

    def run_aligned(self, token_BT: Tensor | None, column: int, num_predicted: int) -> Tensor:
        """Write tokens from `column` on in every lane, predict the columns after them; return the logits [B, P, V]."""
        offset_B = self._session.offset_B
        lanes, device = len(offset_B), offset_B.device
        if token_BT is None:
            token_BT = offset_B.new_empty((lanes, 0))
        num_content = token_BT.shape[1]
        column_Q = torch.arange(column, column + num_content + num_predicted, device=device)
        no_rank_BT = torch.zeros(1, 1, dtype=torch.int64, device=device).expand(lanes, num_content)
        bound_BQ = torch.ones(1, 1, dtype=torch.int64, device=device).expand(lanes, len(column_Q))
        return self.run(
            PassRows(token_BT, column_Q.expand(lanes, -1), no_rank_BT, bound_BQ), self._session.num_columns
        )

    def run(self, rows: PassRows, num_columns: int) -> Tensor:
        """Write and predict as `DecodingSession.step` does, with `num_columns` in use; return the logits [B, P, V]."""
        session = self._session
        available = session.caches[0].key_NBCH.shape[2]
        num_keys = min(available, -(-num_columns // _COLUMNS) * _COLUMNS)
        shape = (rows.num_content, rows.num_predicted, num_keys, int(session.has_documents_before))
        if (recorded := self._recorded.get(shape)) is not None:
            return recorded(rows)
        self._num_passes[shape] += 1
        logits_BPV = session.run_rows(rows, num_keys)
        if self._is_possible and self._num_passes[shape] == _PASSES_BEFORE:
            try:
                self._recorded[shape] = _StaticPass(session, rows, num_keys)
            except RuntimeError as error:
                self._is_possible = False
                _log.warning(
                    "generation takes more time: its passes cannot be recorded (%s)", first_line(error)
                )
        return logits_BPV


class _StaticPass:
    """One recorded pass."""

    def __init__(self, session: "DecodingSession", rows: PassRows, num_keys: int) -> None:
        self._inputs = replace(rows, **{one.name: getattr(rows, one.name).clone() for one in fields(rows)})
        # Recording runs nothing: the pass that has just been made is not repeated.
        self._replay = record(lambda: session.run_rows(self._inputs, num_keys))

    def __call__(self, rows: PassRows) -> Tensor:
        """Repeat the pass with other rows."""
        for one in fields(rows):
            getattr(self._inputs, one.name).copy_(getattr(rows, one.name))
        return self._replay().clone()
