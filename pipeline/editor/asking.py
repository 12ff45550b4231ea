"""Requests to the worker, and waiting for their answers while the client does."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from pretrain.inference.sampling import Sampling
from pretrain.inference.shared_writing import Answer, TextRequest, WrittenToken
from pretrain.inference.worker import Worker


class ClientGoneError(Exception):
    """The client closed the connection."""


@dataclass(frozen=True)
class NewText:
    """Text that is final: of which request and sample, and its tokens if they were asked for."""

    request: int
    sample: int
    text: str
    tokens: Sequence[WrittenToken]


def sampling_of(temperature: float, top_k: int | None, top_p: float | None, seed: int | None) -> Sampling:
    """Return settings of sampling as the protocols mean them: a top-k of 0 or less is none, no seed is a new one."""
    seed = secrets.randbelow(1 << 31) if seed is None or seed < 0 else seed
    return Sampling(temperature, top_k if top_k is not None and top_k > 0 else None, top_p, seed)


async def while_connected(request: Request, awaited: Awaitable[Any]) -> Any:
    """Return what is awaited; if the client goes away first, cancel it and raise ClientGoneError."""
    wanted = asyncio.ensure_future(awaited)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({wanted, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            raise ClientGoneError
        return await wanted
    finally:
        for one in (wanted, gone):
            one.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await one


async def _disconnected(request: Request) -> None:
    """Return when the client has closed the connection; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def answers(request: Request, worker: Worker, wanted: Sequence[TextRequest]) -> list[Answer]:
    """Return the answers to several requests. Raises what `Worker.submit` and its futures raise."""
    futures = _submitted(worker, wanted)
    found: list[Answer] = await while_connected(request, asyncio.gather(*map(asyncio.wrap_future, futures)))
    return found


def _submitted(worker: Worker, wanted: Sequence[TextRequest]) -> list["Future[Answer]"]:
    futures: list[Future[Answer]] = []
    try:
        for one in wanted:
            futures.append(worker.submit(one))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return futures


class Stream:
    """The answers to several requests as they are written."""

    def __init__(self, worker: Worker, wanted: Sequence[TextRequest]) -> None:
        self._events: asyncio.Queue[NewText | BaseException | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._futures: list[Future[Answer]] = []
        self._first: NewText | None = None
        try:
            for number, one in enumerate(wanted):
                future = worker.submit(one, lambda *new, n=number: self._put(NewText(n, *new)))
                future.add_done_callback(self._done)
                self._futures.append(future)
        except BaseException:
            self.cancel()
            raise
        self._num_left = len(self._futures)

    async def begin(self, request: Request) -> None:
        """Wait for the first text. Raises the error of a request that fails before there is any."""
        try:
            self._first = await while_connected(request, self._next())
        except BaseException:
            self.cancel()
            raise

    async def texts(self) -> AsyncIterator[NewText]:
        """Yield all texts as they are final. Raises the error of the first request that fails."""
        new = self._first
        while new is not None:
            yield new
            new = await self._next()

    def answers(self) -> list[Answer]:
        """Return the answers, after the last text."""
        return [future.result() for future in self._futures]

    def cancel(self) -> None:
        """Free the lanes of everything that is not done."""
        for future in self._futures:
            future.cancel()

    async def _next(self) -> NewText | None:
        while self._num_left:
            event = await self._events.get()
            if isinstance(event, BaseException):
                raise event
            if event is not None:
                return event
            self._num_left -= 1
        return None

    def _done(self, future: "Future[Answer]") -> None:
        if not future.cancelled():
            self._put(future.exception())

    def _put(self, event: NewText | BaseException | None) -> None:
        with suppress(RuntimeError):  # the server is closing
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
