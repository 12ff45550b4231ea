"""The thread that owns a model and serves the requests of all others: texts join and leave between passes.

worker = Worker(model)
answer = worker.submit(TextRequest(b"def main(", None, 64)).result()
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from cluster.errors import UserError
from pretrain.inference.history import HistoryCache
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.shared_lanes import JoiningText, SharedLanes, Slot
from pretrain.inference.shared_writing import Answer, OnNewText, SharedText, TextRequest

_T = TypeVar("_T")
_CACHE_BYTES = 256 << 20
_CLOSING_S = 5.0
_OPENING_S = 0.05
"""How long texts are opened before those that are being written go on."""
_OTHERS_S = 0.5
"""How long others are served before a long call goes on."""
_CALL_S = 0.1
"""How long a call goes on before others are served again."""
_log = logging.getLogger(__name__)


class BusyError(Exception):
    """Too many requests wait."""


class _CancelledError(Exception):
    """Nobody waits for a call any more."""


ServeOthers = Callable[[], None]
"""Serves other requests for some time, unless that was just done."""


def pausing(model: PermutationLM, serve_others: ServeOthers) -> PermutationLM:
    """Return the same model; before every pass in which it writes or reads a text to write in, others are served."""
    found = copy(model)
    found.decoder = model.decoder.pausing(serve_others)
    return found


@dataclass(frozen=True, eq=False)
class _Waiting:
    future: "Future[Any]"
    request: TextRequest
    on_new_text: OnNewText | None


@dataclass(frozen=True)
class _Call:
    future: "Future[Any]"
    function: Callable[[ServeOthers], Any]


_Queued = TypeVar("_Queued", _Waiting, _Call)


@dataclass
class _Active:
    future: "Future[Any]"
    text: SharedText
    slot: Slot | None = None


class Worker:
    """A model and its thread. At most `max_lanes` lanes are written at once, and `max_waiting` requests wait for them.

    A request whose future is cancelled leaves its lanes before the next pass. A request that fails does not disturb the
    others; if a pass of all of them fails, all of them do.
    """

    def __init__(self, model: PermutationLM, *, max_lanes: int = 64, max_waiting: int = 256) -> None:
        self.model = model
        self.max_lanes, self.max_waiting = max_lanes, max_waiting
        self.cache = HistoryCache(_CACHE_BYTES)
        self.num_passes = 0
        """How many passes were made for all lanes together."""
        self._lanes = SharedLanes(model.decoder)
        self._waiting: deque[_Waiting] = deque()
        self._calls: deque[_Call] = deque()
        self._active: list[_Active] = []
        self._changed = threading.Condition()
        self._last_group = ""
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="model", daemon=True)
        self._thread.start()

    @property
    def most_hole_tokens(self) -> int:
        """The most tokens of a hole: half a segment, so that the model sees as much of the text around it."""
        return max(1, self.model.segment_tokens // 2)

    @property
    def num_lanes(self) -> int:
        """The number of lanes in use."""
        return self._lanes.num_used

    @property
    def num_waiting(self) -> int:
        """The number of requests that wait for lanes."""
        return len(self._waiting)

    def submit(self, request: TextRequest, on_new_text: OnNewText | None = None) -> "Future[Answer]":
        """Ask for texts. `on_new_text` is called in the worker's thread.

        The future raises UserError for what the model cannot write. Raises BusyError when too many requests wait, and
        UserError for a request that needs more lanes than there are.
        """
        if request.num_lanes > self.max_lanes:
            raise UserError(
                f"{request.num_samples} texts at once are too many for this server: ask for fewer"
            )
        future: Future[Answer] = Future()
        self._add(self._waiting, _Waiting(future, request, on_new_text))
        return future

    def call(self, function: Callable[[ServeOthers], _T]) -> "Future[_T]":
        """Call a function that uses the model, between two passes; one that takes long calls its argument often.

        Its own passes are those of `pausing`, or of the network, because others use the model meanwhile.

        Raises BusyError as `submit`.
        """
        future: Future[_T] = Future()
        self._add(self._calls, _Call(future, function))
        return future

    def warm_up(self) -> None:
        """Make what is made once for a model, so that the first request does not wait for it."""
        text = b"x = 1\n" * self.model.segment_tokens
        with suppress(UserError):  # with absolute positions there is no such text
            self.submit(TextRequest(text, text, min(8, self.most_hole_tokens), reuses_history=False)).result()

    def close(self) -> None:
        """Stop after the current pass; whatever is not done is cancelled. A long call is not waited for."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(_CLOSING_S)
        queues: tuple[Iterable[_Waiting | _Call | _Active], ...] = (self._waiting, self._calls, self._active)
        for queue in queues:
            for one in queue:
                one.future.cancel()

    def _add(self, queue: deque[_Queued], entry: _Queued) -> None:
        with self._changed:
            if len(queue) >= self.max_waiting:
                # Those that nobody waits for any more make room.
                _forget_cancelled(queue)
            if len(queue) >= self.max_waiting:
                raise BusyError(f"{self.max_waiting} requests are waiting already: ask again later")
            queue.append(entry)
            self._changed.notify()

    @torch.inference_mode()
    def _serve(self) -> None:
        while self._has_work():
            self._round()
            self._call_next()

    def _has_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._calls or self._active or self._is_closed)
            return not self._is_closed

    def _round(self) -> None:
        """Let texts leave and join, and make one pass."""
        try:
            self._leave_cancelled()
            self._give_slots(self._open_waiting())
            self._pass()
        except Exception as error:
            if not isinstance(error, UserError):
                _log.exception("a pass failed; the requests that shared it are lost")
            for one in self._active:
                _fail(one.future, error)
            self._active = []
            self._lanes.clear()

    def _call_next(self) -> None:
        with self._changed:
            call = self._calls.popleft() if self._calls else None
        if call is None or call.future.cancelled():
            return

        served_s = time.perf_counter()

        def serve_others() -> None:
            nonlocal served_s
            now_s = time.perf_counter()
            if now_s >= served_s + _CALL_S:
                end_s = now_s + _OTHERS_S
                while (self._waiting or self._active) and not self._is_closed and time.perf_counter() < end_s:
                    self._round()
                served_s = time.perf_counter()
            if call.future.cancelled() or self._is_closed:
                raise _CancelledError

        try:
            _finish(call.future, call.function(serve_others))
        except _CancelledError:
            call.future.cancel()
        except Exception as error:
            if not isinstance(error, UserError):
                _log.exception("a request failed")
            _fail(call.future, error)

    def _leave_cancelled(self) -> None:
        for one in [one for one in self._active if one.future.cancelled()]:
            self._leave(one)

    def _leave(self, one: _Active) -> None:
        self._active.remove(one)
        if one.slot is not None:
            self._lanes.keep(one.slot, [])

    def _open_waiting(self) -> list[_Active]:
        """Open the requests for which there are lanes, in their order, and choose their first tokens."""
        opened: list[_Active] = []
        end_s = time.perf_counter() + _OPENING_S
        while (entry := self._next(sum(len(one.text.token_B) for one in opened))) is not None:
            try:
                one = _Active(
                    entry.future, SharedText(self.model, entry.request, self.cache, entry.on_new_text)
                )
                if self._choose_alone(one, one.text.decoding.first()):
                    opened.append(one)
            except Exception as error:
                if not isinstance(error, UserError):
                    _log.exception("a request failed")
                _fail(entry.future, error)
            if time.perf_counter() > end_s:
                break
        return opened

    def _next(self, num_opened: int) -> _Waiting | None:
        with self._changed:
            _forget_cancelled(self._waiting)
            if not self._waiting:
                return None
            # So a request for many texts does not hold up those that come after it.
            last = self._last_group
            others = (one for one in self._waiting if not last or one.request.group != last)
            found = next(others, self._waiting[0])
            if self._lanes.num_used + num_opened + found.request.num_lanes > self.max_lanes:
                return None
            self._waiting.remove(found)
            self._last_group = found.request.group
            return found

    def _choose_alone(self, one: _Active, logits_BV: torch.Tensor) -> bool:
        """Choose the next tokens of a text that has no slot; return whether it goes on."""
        num_lanes = len(one.text.writing.lanes)
        going = one.text.choose(logits_BV)
        if one.text.is_over:
            _finish(one.future, one.text.answer())
            return False
        if len(going) < num_lanes:
            one.text.decoding.retain(torch.tensor(going, device=logits_BV.device))
        return True

    def _give_slots(self, opened: Sequence[_Active]) -> None:
        if not opened:
            return
        joining = [
            JoiningText(one.text.decoding.session, one.text.decoding.column, one.text.token_B)
            for one in opened
        ]
        self._active += opened
        for one, slot in zip(opened, self._lanes.join(joining), strict=True):
            one.slot = slot
            # Its keys and values are in the shared lanes now.
            session = one.text.decoding.session
            session.take_lanes(torch.zeros(0, dtype=torch.int64, device=session.offset_B.device))

    def _pass(self) -> None:
        """Write the next token of every text and choose those after them."""
        full = [one for one in self._active if one.text.decoding.is_full]
        moved = [one for one in full if self._next_segment(one)]
        in_slots = [one for one in self._active if one.slot is not None]
        if in_slots:
            logits_BV = self._lanes.advance()
            self.num_passes += 1
            for one in in_slots:
                self._choose(one, logits_BV)
        self._give_slots(moved)

    def _next_segment(self, one: _Active) -> bool:
        """Let a text whose segment is full go on by itself, with its next segment; return whether it does."""
        assert one.slot is not None
        self._active.remove(one)
        one.text.decoding.session = self._lanes.take_out(one.slot)
        one.slot = None
        try:
            return self._choose_alone(one, one.text.decoding.following(one.text.token_B))
        except Exception as error:
            if not isinstance(error, UserError):
                _log.exception("a request failed")
            _fail(one.future, error)
            return False

    def _choose(self, one: _Active, logits_BV: torch.Tensor) -> None:
        assert one.slot is not None
        one.text.decoding.advance(one.text.token_B)
        num_lanes = len(one.slot.lanes)
        try:
            going = one.text.choose(logits_BV[torch.tensor(one.slot.lanes, device=logits_BV.device)])
            is_over = one.text.is_over
            if is_over:
                _finish(one.future, one.text.answer())
        except Exception as error:
            _fail(one.future, error)
            is_over = True
            if not isinstance(error, UserError):
                raise
        if is_over:
            self._leave(one)
            return
        if len(going) < num_lanes:
            self._lanes.keep(one.slot, going)
            one.text.decoding.forget(torch.tensor(going, device=logits_BV.device))
        self._lanes.put(one.slot, one.text.token_B)


def _forget_cancelled(queue: deque[_Queued]) -> None:
    if any(one.future.cancelled() for one in queue):
        kept = [one for one in queue if not one.future.cancelled()]
        queue.clear()
        queue.extend(kept)


def _finish(future: "Future[Any]", result: Any) -> None:
    """Set a result, unless the future was cancelled meanwhile."""
    try:
        future.set_result(result)
    except InvalidStateError:
        pass


def _fail(future: "Future[Any]", error: BaseException) -> None:
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass
