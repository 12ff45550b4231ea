"""Server-sent events: one line of JSON each."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cluster.errors import UserError
from pipeline.editor.bodies import one_line

DONE = "[DONE]"
_FEW = 100


class EventStream(StreamingResponse):
    """A response that sends each event as soon as it is there; an error becomes the last one.

    `on_end` is called at its end, also if the client goes away before.
    """

    def __init__(self, events: AsyncIterator[dict[str, Any] | str], on_end: Callable[[], None]) -> None:
        super().__init__(_lines(events), media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def _lines(events: AsyncIterator[dict[str, Any] | str]) -> AsyncIterator[str]:
    try:
        async for event in events:
            yield _line(event if isinstance(event, str) else _json(event))
    except UserError as error:
        yield _line(_json(error_body(400, one_line(str(error)))))


def _line(text: str) -> str:
    return f"data: {text}\n\n"


def json_in_pieces(value: Any) -> str:
    """Return JSON of a large value, which a thread makes without stopping the others."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(key)}:{json_in_pieces(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_in_pieces, value) if len(value) < _FEW else map(_json, value)) + "]"
    return _json(value)


def _json(event: Any) -> str:
    return json.dumps(event, separators=(",", ":"))


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error as OpenAI and llama.cpp have it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "code": status}}
