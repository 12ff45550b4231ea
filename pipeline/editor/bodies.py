"""The bodies of requests: their fields, limits, and what is wrong with them in one line.

Fields that are not named here are ignored, as llama.cpp does. `prompt` is read by `prompts.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import Request

MAX_BODY_BYTES = 8 << 20
MAX_SCANNED_BYTES = 64 << 10
MAX_HOLES_BYTES = 1 << 20
_MAX_DISCARDED_BYTES = 256 << 20
MAX_PROMPTS = 64
_MAX_STOPS = 64
_MAX_STOP = 1000
_MAX_ALTERNATIVES = 20
_MAX_TOP_LINES = 20
_CHUNK_S = 30.0
_MAX_LINE = 300
_MAX_SOUGHT = 1000


class BodyError(Exception):
    """A body that cannot be used; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def json_kind(value: Any) -> str:
    """Return what a message calls a value that is of a wrong kind."""
    return "null" if value is None else f"a JSON {type(value).__name__}"


def one_line(text: str) -> str:
    """Return a message as one line that is not too long."""
    return " ".join(text.split())[:_MAX_LINE]


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


_StopTexts = Annotated[
    list[Annotated[str, Field(max_length=_MAX_STOP)]],
    BeforeValidator(_as_list),
    Field(max_length=_MAX_STOPS),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Extra(_Body):
    """Text of another file."""

    filename: str = ""
    text: str = ""


class InfillBody(_Body):
    """`POST /infill` of llama.cpp."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] | None = None
    prompt: Any = None
    n_predict: int | None = None
    stop: _StopTexts = []
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stream: bool | None = None
    cache_prompt: bool | None = None
    t_max_predict_ms: float | None = None
    response_fields: list[str] | None = None


class StreamOptions(_Body):
    """Options of a stream of OpenAI's protocol."""

    include_usage: bool | None = None


class CompletionBody(_Body):
    """`POST /v1/completions` of OpenAI."""

    prompt: Any = None
    suffix: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: _StopTexts = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=_MAX_ALTERNATIVES)] | None = None
    echo: bool | None = None
    seed: int | None = None


class HolesBody(_Body):
    """`POST /v1/holes`: the texts around the holes, each hole's tokens (null: as many as the model chooses)."""

    parts: Annotated[list[str], Field(min_length=2, max_length=MAX_PROMPTS)]
    lengths: list[Annotated[int, Field(ge=1)] | None] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    order: Literal["most_certain", "left_to_right"] | list[int] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


class ScanBody(_Body):
    """`POST /v1/scan`: a text, and of how many lines to write what the model would write in their place."""

    text: str
    fast: bool | None = None
    top: Annotated[int, Field(ge=0, le=_MAX_TOP_LINES)] | None = None


class CorpusBody(_Body):
    """`POST /v1/corpus`: a text that documents of the corpus contain."""

    text: Annotated[str, Field(min_length=1, max_length=_MAX_SOUGHT)]


class Segments(_Body):
    """The text around the cursor in Tabby's protocol."""

    prefix: str
    suffix: str | None = None


class TabbyBody(_Body):
    """`POST /v1/completions` of Tabby."""

    segments: Segments
    temperature: float | None = None
    seed: int | None = None


_Wanted = TypeVar("_Wanted", bound=_Body)


async def read_body(request: Request) -> dict[str, Any]:
    """Return a request's JSON object. Raises BodyError for anything else, without keeping more than the limit."""
    too_large = BodyError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB: send less text")
    if request.headers.get("expect", "").lower() == "100-continue":
        # The client has not sent it yet, and need not.
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            raise too_large
    kept, num_bytes = bytearray(), 0
    async for chunk in _in_time(request.stream()):
        num_bytes += len(chunk)
        if num_bytes <= MAX_BODY_BYTES:
            kept += chunk
        elif num_bytes > _MAX_DISCARDED_BYTES:
            break
    # The rest was read and dropped, because clients read no answer while they send.
    if num_bytes > MAX_BODY_BYTES:
        raise too_large
    try:
        found = json.loads(kept.decode())
    except (ValueError, RecursionError) as error:
        raise BodyError(400, f"the body is no JSON ({one_line(str(error))})") from None
    if not isinstance(found, dict):
        raise BodyError(400, f"the body is {json_kind(found)}, not an object")
    return found


async def _in_time(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks. Raises BodyError when one does not come in time, so that nobody occupies connections."""
    while True:
        try:
            yield await asyncio.wait_for(anext(chunks), _CHUNK_S)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise BodyError(408, f"nothing more of the body came for {_CHUNK_S:g} s: send it again") from None


def checked(kind: type[_Wanted], fields: dict[str, Any]) -> _Wanted:
    """Return the fields of a body. Raises BodyError that names the first that is wrong."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BodyError(400, one_line(f"{place}: {first['msg']}")) from None


def as_bytes(text: str, name: str) -> bytes:
    """Return a text as UTF-8. Raises BodyError for half of a surrogate pair, which JSON can hold and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BodyError(400, f"{name}: character {error.start} is half of a surrogate pair") from None
