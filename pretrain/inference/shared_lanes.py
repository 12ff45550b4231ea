"""Continuous batching: one pass of the model serves all texts, which join and leave its lanes between passes.

All lanes write their next token in the same column: the model knows distances only, so a text may begin in any column.
When columns run out, or a text needs more lanes than are free, all lanes move to a new session, which begins as far to
the front as the longest text allows.

Shapes: B lanes, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.inference.decoder import Decoder, check_room
from pretrain.inference.session import DecodingSession


@dataclass(eq=False)
class Slot:
    """The lanes of a text with `num_columns`; its column c is column c + `shift_columns` of the lanes."""

    lanes: list[int]
    shift_columns: int
    num_columns: int


@dataclass(frozen=True)
class JoiningText:
    """A text that joins: its session, the column of its next token, and that token for every lane."""

    session: DecodingSession
    column: int
    token_B: Tensor


class SharedLanes:
    """The lanes. A lane that nobody uses is computed too, so at most half of them are free."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._slots: list[Slot] = []
        self._session: DecodingSession | None = None
        self._column = 0
        self._token_B = torch.zeros(0, dtype=torch.int64)

    @property
    def num_used(self) -> int:
        """The number of lanes that texts use."""
        return sum(len(slot.lanes) for slot in self._slots)

    @torch.inference_mode()
    def join(self, joining: Sequence[JoiningText]) -> list[Slot]:
        """Let texts join. Raises UserError when there is no memory for them."""
        slots = [Slot([], 0, text.session.max_columns) for text in joining]
        num_new = sum(len(text.token_B) for text in joining)
        self._make_room(num_new, max(text.column for text in joining), slots)
        session = self._session
        assert session is not None
        used = {lane for slot in self._slots for lane in slot.lanes}
        free = iter([lane for lane in range(len(session.offset_B)) if lane not in used])
        device = session.offset_B.device
        for text, slot in zip(joining, slots, strict=True):
            slot.lanes = [next(free) for _ in text.token_B]
            slot.shift_columns = self._column - text.column
            to_X = torch.tensor(slot.lanes, device=device)
            from_X = torch.arange(len(to_X), device=device)
            session.put_lanes(text.session, from_X, to_X, slot.shift_columns, text.session.num_columns)
            self._token_B[to_X] = text.token_B
            self._slots.append(slot)
        return slots

    def advance(self) -> Tensor:
        """Write the next token of every lane and return the logits [B, V] of the tokens after them."""
        assert self._session is not None
        is_half_free = 2 * self.num_used <= len(self._session.offset_B)
        if is_half_free or self._column >= self._session.max_columns:
            self._move(self.num_used, 0, ())
        self._column += 1
        return self._session.write_and_predict(self._token_B, self._column - 1)

    def put(self, slot: Slot, token_B: Tensor) -> None:
        """Give the next token of every lane of a text."""
        self._token_B[torch.tensor(slot.lanes, device=self._token_B.device)] = token_B

    def keep(self, slot: Slot, places: Sequence[int]) -> None:
        """Keep only some of a text's lanes, by their places; without any the text leaves."""
        slot.lanes = [slot.lanes[place] for place in places]
        if not slot.lanes:
            self._slots.remove(slot)

    @torch.inference_mode()
    def take_out(self, slot: Slot) -> DecodingSession:
        """Return a text's lanes as a session of their own, without their next tokens; the text leaves."""
        assert self._session is not None
        alone = DecodingSession(self._decoder, len(slot.lanes), slot.num_columns)
        device = alone.offset_B.device
        own_X = torch.tensor(slot.lanes, device=device)
        to_X = torch.arange(len(own_X), device=device)
        alone.put_lanes(self._session, own_X, to_X, -slot.shift_columns, self._column)
        self._slots.remove(slot)
        return alone

    def clear(self) -> None:
        """Let all texts leave."""
        self._slots, self._session = [], None

    def _make_room(self, num_new: int, column: int, slots: Sequence[Slot]) -> None:
        """Have lanes and columns for texts whose next tokens are in `column` of their own."""
        num_wanted = self.num_used + num_new
        num_lanes = 0 if self._session is None else len(self._session.offset_B)
        if self._session is not None and not self._slots:
            self._session.clear()
            self._column = column
        num_columns = max(self._column - column + slot.num_columns for slot in slots)
        is_fine = (
            self._session is not None
            and num_wanted <= num_lanes <= 2 * num_wanted
            and self._column >= column
            and num_columns <= self._session.max_columns
        )
        if not is_fine:
            self._move(num_wanted, column, slots)

    @torch.inference_mode()
    def _move(self, num_lanes: int, column: int, joining: Sequence[Slot]) -> None:
        """Move all texts to a new session, their next token in the first column that is possible for all of them."""
        own_columns = [self._column - slot.shift_columns for slot in self._slots]
        first = max([column, *own_columns])
        moved = first - self._column
        needed = [first - column + slot.num_columns for slot in joining]
        needed += [slot.shift_columns + moved + slot.num_columns for slot in self._slots]
        # Room for some passes before columns run out again.
        num_columns = max(needed) + self._decoder.segment_tokens
        check_room(self._decoder, num_lanes, num_columns)
        session = DecodingSession(self._decoder, num_lanes, num_columns)
        device = session.offset_B.device
        token_B = torch.zeros(num_lanes, dtype=torch.int64, device=device)
        lane = 0
        for slot in self._slots:
            assert self._session is not None
            from_X = torch.tensor(slot.lanes, device=device)
            slot.lanes = list(range(lane, lane + len(slot.lanes)))
            lane += len(slot.lanes)
            to_X = torch.tensor(slot.lanes, device=device)
            end_column = min(self._session.max_columns, slot.shift_columns + slot.num_columns)
            session.put_lanes(self._session, from_X, to_X, moved, end_column)
            token_B[to_X] = self._token_B[from_X]
            slot.shift_columns += moved
        self._session, self._token_B, self._column = session, token_B, first
