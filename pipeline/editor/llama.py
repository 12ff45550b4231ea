"""llama.cpp's `POST /infill`, as llama.vim and llama.vscode ask it.

The hole is between `input_prefix` with `prompt`, which is the text of the cursor's line, and `input_suffix`. Text of
other files (`input_extra`) is read before it. Without a temperature the most likely tokens are chosen: an editor shows
one suggestion.
"""

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.editor.asking import Stream, answers, sampling_of
from pipeline.editor.bodies import InfillBody, as_bytes, checked
from pipeline.editor.events import EventStream
from pipeline.editor.prompts import prompt_of
from pretrain.inference.shared_writing import Answer, TextRequest
from pretrain.inference.worker import Worker

_STOP_TYPES = {"end": "eos", "stop": "word", "length": "limit"}


async def infill(request: Request, worker: Worker, model_name: str, fields: dict[str, Any]) -> Response:
    """Answer the request."""
    body = checked(InfillBody, fields)
    prompt = prompt_of("" if body.prompt is None else body.prompt, worker.model.tokenizer)
    prefix = as_bytes(body.input_prefix, "input_prefix") + prompt.data
    most_tokens = worker.most_hole_tokens
    num_tokens = most_tokens if body.n_predict is None or body.n_predict < 0 else body.n_predict
    if num_tokens == 0:  # to warm up
        return JSONResponse(_chosen({"content": "", "stop": True, "model": model_name}, body))
    wanted = TextRequest(
        prefix,
        as_bytes(body.input_suffix, "input_suffix"),
        min(num_tokens, most_tokens),
        sampling_of(max(0.0, body.temperature or 0.0), body.top_k, body.top_p, body.seed),
        stop=[as_bytes(one, "stop") for one in body.stop if one],
        time_limit_s=_time_limit_s(body),
        reuses_history=body.cache_prompt is not False,
        documents_before=[as_bytes(one.text, "input_extra") for one in body.input_extra or []],
    )
    if body.stream:
        stream = Stream(worker, [wanted])
        await stream.begin(request)
        return EventStream(_events(stream, body, model_name), stream.cancel)
    (answer,) = await answers(request, worker, [wanted])
    return JSONResponse(_chosen(_result(answer, model_name), body))


def _time_limit_s(body: InfillBody) -> float | None:
    limit_ms = body.t_max_predict_ms
    return None if limit_ms is None or limit_ms <= 0 else limit_ms / 1000


async def _events(stream: Stream, body: InfillBody, model_name: str) -> AsyncIterator[dict[str, Any]]:
    async for new in stream.texts():
        yield {"content": new.text, "stop": False}
    (answer,) = stream.answers()
    yield _chosen({**_result(answer, model_name), "content": ""}, body)


def _result(answer: Answer, model_name: str) -> dict[str, Any]:
    (text,) = answer.texts
    completion, num_read = text.completion, answer.num_prompt_tokens - answer.num_reused
    return {
        "content": completion.text,
        "stop": True,
        "model": model_name,
        "tokens_predicted": completion.num_tokens,
        "tokens_evaluated": answer.num_prompt_tokens,
        "tokens_cached": answer.num_reused,
        "truncated": not answer.sees_all,
        "has_new_line": "\n" in completion.text,
        "stop_type": _STOP_TYPES[completion.finish],
        "timings": {
            **_timings("prompt", num_read, answer.reading_s),
            **_timings("predicted", completion.num_tokens, answer.writing_s),
            "truncated": not answer.sees_all,
        },
    }


def _timings(name: str, num_tokens: int, spent_s: float) -> dict[str, float]:
    return {
        f"{name}_n": num_tokens,
        f"{name}_ms": 1000 * spent_s,
        f"{name}_per_token_ms": 1000 * spent_s / max(1, num_tokens),
        f"{name}_per_second": num_tokens / max(spent_s, 1e-9),
    }


def _chosen(result: dict[str, Any], body: InfillBody) -> dict[str, Any]:
    """Return the fields that were asked for, those of parts by names such as "timings/prompt_n"."""
    if not body.response_fields:
        return result
    found = {}
    for name in body.response_fields:
        value: Any = result
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found
