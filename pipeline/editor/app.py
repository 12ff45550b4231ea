"""The application: paths, who may ask, and errors as one line of JSON."""

import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cluster.errors import UserError
from pipeline.editor.asking import ClientGoneError
from pipeline.editor.bodies import BodyError, one_line, read_body
from pipeline.editor.corpus import CorpusSearch
from pipeline.editor.events import error_body
from pipeline.editor.llama import infill
from pipeline.editor.openai import complete, tabby
from pipeline.editor.page import Page
from pipeline.editor.whole_texts import fill_holes, scan
from pretrain.inference.worker import BusyError, Worker

_PAGE_PATH = "/"
_OPEN_PATHS = ("/health", "/v1/health", _PAGE_PATH)
"""What is answered without a key: that the server is there, and the page, which asks for the key."""
_GONE = 499
"""The status that servers log for a client that has gone; nobody reads it."""


class Access:
    """Middleware that checks the API key, if there is one, and the Host header, if `host_names` is given.

    The Host check prevents DNS rebinding: a web page whose own name resolves to loopback is refused.
    """

    def __init__(self, app: ASGIApp, api_key: str | None, host_names: frozenset[str] | None) -> None:
        self._app, self._api_key, self._host_names = app, api_key, host_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or refuse it."""
        if scope["type"] == "http" and (refused := self._refusal(Request(scope))) is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if self._host_names is not None and name and name.lower() not in self._host_names:
            return _error(403, "this server answers requests to this machine by its own name only")
        if self._api_key is None or request.url.path in _OPEN_PATHS:
            return None
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            key.strip().encode(), self._api_key.encode()
        ):
            return _error(401, "the API key is missing or wrong: send Authorization: Bearer KEY")
        return None


@dataclass(frozen=True)
class Playground:
    """What a server with the page has beyond that of editors; `search` is None where there is no corpus."""

    page: Page
    search: CorpusSearch | None


def application(
    worker: Worker,
    model_name: str,
    *,
    api_key: str | None = None,
    host_names: frozenset[str] | None = None,
    on_start: Callable[[], None] = lambda: None,
    playground: Playground | None = None,
) -> Starlette:
    """Return the application; it closes the worker when it ends. `host_names` limits what a request may ask for."""
    handlers = _Handlers(worker, model_name)
    playground_routes = [] if playground is None else _playground_routes(playground)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        on_start()
        yield
        worker.close()

    return Starlette(
        routes=[
            Route("/health", handlers.health),
            Route("/v1/health", handlers.health),
            Route("/props", handlers.properties),
            Route("/v1/models", handlers.models),
            Route("/infill", handlers.infill, methods=["POST"]),
            Route("/v1/completions", handlers.completions, methods=["POST"]),
            Route("/v1/holes", handlers.holes, methods=["POST"]),
            Route("/v1/scan", handlers.scan, methods=["POST"]),
            *playground_routes,
        ],
        middleware=[Middleware(Access, api_key=api_key, host_names=host_names)],
        exception_handlers={
            HTTPException: _http_error,
            BodyError: _body_error,
            UserError: _user_error,
            BusyError: _busy_error,
            ClientGoneError: _gone_error,
            ClientDisconnect: _gone_error,
            Exception: _failure,
        },
        lifespan=lifespan,
    )


def _playground_routes(playground: Playground) -> list[Route]:
    async def page(_request: Request) -> Response:
        return playground.page.response()

    async def search(request: Request) -> Response:
        if playground.search is None:
            raise BodyError(404, "there is no corpus beside the model, so there is nothing to search")
        return await playground.search.answer(request, await read_body(request))

    return [Route(_PAGE_PATH, page), Route("/v1/corpus", search, methods=["POST"])]


class _Handlers:
    """The answers by path."""

    def __init__(self, worker: Worker, model_name: str) -> None:
        self._worker, self._model_name, self._created = worker, model_name, int(time.time())

    async def health(self, _request: Request) -> Response:
        model = self._worker.model
        return JSONResponse({"status": "ok", "model": self._model_name, "device": model.network.device.type})

    async def properties(self, _request: Request) -> Response:
        model, settings = self._worker.model, {"temperature": 0.0}
        n_ctx = model.segment_tokens + model.decoder.memory_tokens
        return JSONResponse(
            {
                "default_generation_settings": {"n_ctx": n_ctx, "params": settings},
                "total_slots": self._worker.max_lanes,
                "model_path": self._model_name,
            }
        )

    async def models(self, _request: Request) -> Response:
        model = {
            "id": self._model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "permcode",
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def infill(self, request: Request) -> Response:
        return await infill(request, self._worker, self._model_name, await read_body(request))

    async def holes(self, request: Request) -> Response:
        return await fill_holes(request, self._worker, self._model_name, await read_body(request))

    async def scan(self, request: Request) -> Response:
        return await scan(request, self._worker, self._model_name, await read_body(request))

    async def completions(self, request: Request) -> Response:
        fields = await read_body(request)
        if "segments" in fields:
            return await tabby(request, self._worker, fields)
        return await complete(request, self._worker, self._model_name, fields)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(error_body(status, one_line(message)), status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return _error(error.status_code, message, dict(error.headers or {}))


async def _body_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BodyError)
    # What a client still sends is not read.
    return _error(error.status, str(error), {"Connection": "close"} if error.status in (408, 413) else None)


async def _user_error(_request: Request, error: Exception) -> Response:
    return _error(400, str(error))


async def _busy_error(_request: Request, error: Exception) -> Response:
    return _error(429, str(error), {"Retry-After": "1"})


async def _gone_error(_request: Request, _error_: Exception) -> Response:
    return Response(status_code=_GONE)


async def _failure(_request: Request, error: Exception) -> Response:
    return _error(500, f"failed: {type(error).__name__}")
