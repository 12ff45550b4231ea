"""Server-sent events: one line of JSON each."""

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from cluster.errors import UserError

DONE = "[DONE]"


def event_stream(events: AsyncIterator[dict[str, Any] | str]) -> StreamingResponse:
    """Return a response that sends each event as soon as it is there; an error becomes the last one."""
    return StreamingResponse(_lines(events), media_type="text/event-stream")


async def _lines(events: AsyncIterator[dict[str, Any] | str]) -> AsyncIterator[str]:
    try:
        async for event in events:
            yield f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
    except UserError as error:
        yield f"data: {json.dumps(error_body(400, str(error)))}\n\n"


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error as OpenAI and llama.cpp have it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "code": status}}
