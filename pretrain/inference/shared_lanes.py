"""Lanes that several texts share: one pass of the model serves all of them, and texts join and leave between passes.

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
class Seat:
    """The lanes of a text with `num_columns`; its column c is column c + `shift_columns` of the lanes."""

    lanes: list[int]
    shift_columns: int
    num_columns: int


@dataclass(frozen=True)
class Guest:
    """A text that joins: its session, the column of its next token, and that token for every lane."""

    session: DecodingSession
    column: int
    token_B: Tensor


class SharedLanes:
    """The lanes. A lane that nobody uses is computed too, so at most half of them are free."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._seats: list[Seat] = []
        self._session: DecodingSession | None = None
        self._column = 0
        self._token_B = torch.zeros(0, dtype=torch.int64)

    @property
    def num_used(self) -> int:
        """The number of lanes that texts use."""
        return sum(len(seat.lanes) for seat in self._seats)

    @torch.inference_mode()
    def join(self, guests: Sequence[Guest]) -> list[Seat]:
        """Let texts join. Raises UserError when there is no memory for them."""
        seats = [Seat([], 0, guest.session.max_columns) for guest in guests]
        num_new = sum(len(guest.token_B) for guest in guests)
        self._make_room(num_new, max(guest.column for guest in guests), seats)
        session = self._session
        assert session is not None
        used = {lane for seat in self._seats for lane in seat.lanes}
        free = iter([lane for lane in range(len(session.offset_B)) if lane not in used])
        device = session.offset_B.device
        for guest, seat in zip(guests, seats, strict=True):
            seat.lanes = [next(free) for _ in guest.token_B]
            seat.shift_columns = self._column - guest.column
            to_X = torch.tensor(seat.lanes, device=device)
            from_X = torch.arange(len(to_X), device=device)
            session.put_lanes(guest.session, from_X, to_X, seat.shift_columns, guest.session.num_columns)
            self._token_B[to_X] = guest.token_B
            self._seats.append(seat)
        return seats

    def advance(self) -> Tensor:
        """Write the next token of every lane and return the logits [B, V] of the tokens after them."""
        assert self._session is not None
        is_half_free = 2 * self.num_used <= len(self._session.offset_B)
        if is_half_free or self._column >= self._session.max_columns:
            self._move(self.num_used, 0, ())
        self._column += 1
        return self._session.write_and_predict(self._token_B, self._column - 1)

    def put(self, seat: Seat, token_B: Tensor) -> None:
        """Give the next token of every lane of a text."""
        self._token_B[torch.tensor(seat.lanes, device=self._token_B.device)] = token_B

    def keep(self, seat: Seat, places: Sequence[int]) -> None:
        """Keep only some of a text's lanes, by their places; without any the text leaves."""
        seat.lanes = [seat.lanes[place] for place in places]
        if not seat.lanes:
            self._seats.remove(seat)

    @torch.inference_mode()
    def take_out(self, seat: Seat) -> DecodingSession:
        """Return a text's lanes as a session of their own, without their next tokens; the text leaves."""
        assert self._session is not None
        alone = DecodingSession(self._decoder, len(seat.lanes), seat.num_columns)
        device = alone.offset_B.device
        own_X = torch.tensor(seat.lanes, device=device)
        to_X = torch.arange(len(own_X), device=device)
        alone.put_lanes(self._session, own_X, to_X, -seat.shift_columns, self._column)
        self._seats.remove(seat)
        return alone

    def clear(self) -> None:
        """Let all texts leave."""
        self._seats, self._session = [], None

    def _make_room(self, num_new: int, column: int, seats: Sequence[Seat]) -> None:
        """Have lanes and columns for texts whose next tokens are in `column` of their own."""
        num_wanted = self.num_used + num_new
        num_lanes = 0 if self._session is None else len(self._session.offset_B)
        if self._session is not None and not self._seats:
            self._session.clear()
            self._column = column
        num_columns = max(self._column - column + seat.num_columns for seat in seats)
        is_fine = (
            self._session is not None
            and num_wanted <= num_lanes <= 2 * num_wanted
            and self._column >= column
            and num_columns <= self._session.max_columns
        )
        if not is_fine:
            self._move(num_wanted, column, seats)

    @torch.inference_mode()
    def _move(self, num_lanes: int, column: int, guests: Sequence[Seat]) -> None:
        """Move all texts to a new session, their next token in the first column that is possible for all of them."""
        own_columns = [self._column - seat.shift_columns for seat in self._seats]
        first = max([column, *own_columns])
        moved = first - self._column
        needed = [first - column + seat.num_columns for seat in guests]
        needed += [seat.shift_columns + moved + seat.num_columns for seat in self._seats]
        # Room for some passes before columns run out again.
        num_columns = max(needed) + self._decoder.segment_tokens
        check_room(self._decoder, num_lanes, num_columns)
        session = DecodingSession(self._decoder, num_lanes, num_columns)
        device = session.offset_B.device
        token_B = torch.zeros(num_lanes, dtype=torch.int64, device=device)
        lane = 0
        for seat in self._seats:
            assert self._session is not None
            from_X = torch.tensor(seat.lanes, device=device)
            seat.lanes = list(range(lane, lane + len(seat.lanes)))
            lane += len(seat.lanes)
            to_X = torch.tensor(seat.lanes, device=device)
            end_column = min(self._session.max_columns, seat.shift_columns + seat.num_columns)
            session.put_lanes(self._session, from_X, to_X, moved, end_column)
            token_B[to_X] = self._token_B[from_X]
            seat.shift_columns += moved
        self._session, self._token_B, self._column = session, token_B, first
