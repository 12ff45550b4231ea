"""OpenAI's `POST /v1/completions`, with `suffix`, and Tabby's on the same path.

With a suffix that is not empty the model fills the hole between both, else it continues the prompt.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.editor.asking import Stream, answers, sampling_of, while_connected
from pipeline.editor.bodies import MAX_SCANNED_BYTES, BodyError, CompletionBody, TabbyBody, as_bytes, checked
from pipeline.editor.events import DONE, EventStream, json_in_pieces
from pipeline.editor.log_probabilities import log_probabilities, scored_tokens
from pipeline.editor.prompts import Prompt, prompts_of
from pretrain.inference.shared_writing import Answer, TextRequest, WrittenToken
from pretrain.inference.worker import Worker

_DEFAULT_TOKENS = 16
_MAX_TOKENS = 4096
_TABBY_TOKENS = 64


async def tabby(request: Request, worker: Worker, fields: dict[str, Any]) -> Response:
    """Answer a request of Tabby's clients."""
    body = checked(TabbyBody, fields)
    suffix = as_bytes(body.segments.suffix or "", "segments.suffix") or None
    wanted = TextRequest(
        as_bytes(body.segments.prefix, "segments.prefix"),
        suffix,
        _TABBY_TOKENS if suffix is None else min(_TABBY_TOKENS, worker.most_hole_tokens),
        sampling_of(body.temperature or 0.0, None, None, body.seed),
    )
    (answer,) = await answers(request, worker, [wanted])
    choice = {"index": 0, "text": answer.texts[0].completion.text}
    return JSONResponse({"id": f"cmpl-{uuid.uuid4().hex}", "choices": [choice]})


async def complete(request: Request, worker: Worker, model_name: str, fields: dict[str, Any]) -> Response:
    """Answer a request of OpenAI's clients."""
    body = checked(CompletionBody, fields)
    # In a thread, because millions of ids take long.
    prompts = await asyncio.to_thread(prompts_of, body.prompt, worker.model.tokenizer)
    completions = _Completions(worker, model_name, body, prompts)
    await completions.score_prompts(request)
    if completions.body.stream:
        return await completions.stream(request)
    return await completions.whole(request)


class _Completions:
    """One request: its texts in the order of prompts and samples."""

    def __init__(
        self, worker: Worker, model_name: str, body: CompletionBody, prompts: Sequence[Prompt]
    ) -> None:
        self.body, self._worker = body, worker
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model_name,
        }
        self._num_samples = body.n or 1
        self._prompts = prompts
        self._wanted = [self._request(one.data) for one in self._prompts] if self._max_tokens() else []
        self._prompt_tokens: list[Sequence[WrittenToken]] = [() for _ in self._prompts]

    def _max_tokens(self) -> int:
        wanted = self.body.max_tokens
        if wanted is not None and wanted < 0:
            raise BodyError(400, f"max_tokens: {wanted} is below 0")
        return _DEFAULT_TOKENS if wanted is None else min(wanted, _MAX_TOKENS)

    def _request(self, prompt: bytes) -> TextRequest:
        body, max_tokens = self.body, self._max_tokens()
        suffix = as_bytes(body.suffix or "", "suffix") or None
        return TextRequest(
            prompt,
            suffix,
            max_tokens if suffix is None else min(max_tokens, self._worker.most_hole_tokens),
            sampling_of(
                1.0 if body.temperature is None else body.temperature, body.top_k, body.top_p, body.seed
            ),
            num_samples=self._num_samples,
            stop=[as_bytes(one, "stop") for one in body.stop if one],
            num_alternatives=body.logprobs,
            group=str(self._head["id"]),
        )

    async def score_prompts(self, request: Request) -> None:
        """Find the log-probabilities of the prompts' tokens, each given those before it, if they are to be shown."""
        if not self.body.echo or self.body.logprobs is None:
            return
        model = self._worker.model
        if sum(len(one.data) for one in self._prompts) > MAX_SCANNED_BYTES:
            limit = MAX_SCANNED_BYTES >> 10
            raise BodyError(413, f"prompt: longer than {limit} KiB, which is too much for logprobs with echo")
        num_alternatives = self.body.logprobs
        scoring = self._worker.call(
            lambda serve_others: [
                scored_tokens(model, one.data, num_alternatives, serve_others) for one in self._prompts
            ]
        )
        self._prompt_tokens = await while_connected(request, asyncio.wrap_future(scoring))

    async def whole(self, request: Request) -> Response:
        """Return all texts at once."""
        found = await answers(request, self._worker, self._wanted)
        # In a thread, because long prompts with log-probabilities take seconds.
        answer = await asyncio.to_thread(lambda: json_in_pieces(self._whole(found)))
        return Response(answer, media_type="application/json")

    def _whole(self, found: Sequence[Answer]) -> dict[str, Any]:
        choices = []
        for number, prompt in enumerate(self._prompts):
            for sample in range(self._num_samples):
                text, finish = "", "length"
                tokens: Sequence[WrittenToken] = ()
                if found:
                    written = found[number].texts[sample]
                    text, tokens = written.completion.text, written.tokens
                    finish = _finish_reason(found[number], sample)
                shown = [*self._prompt_tokens[number], *tokens]
                choices.append(
                    {
                        "text": prompt.text + text if self.body.echo else text,
                        "index": number * self._num_samples + sample,
                        "logprobs": self._logprobs(shown, 0 if self.body.echo else len(prompt.text)),
                        "finish_reason": finish,
                    }
                )
        return {**self._head, "choices": choices, "usage": self._usage(found)}

    async def stream(self, request: Request) -> Response:
        """Return the texts as they are written."""
        stream = Stream(self._worker, self._wanted)
        await stream.begin(request)
        return EventStream(self._events(stream), stream.cancel)

    async def _events(self, stream: Stream) -> AsyncIterator[dict[str, Any] | str]:
        num_characters = [len(prompt.text) for prompt in self._prompts for _ in range(self._num_samples)]
        if self.body.echo:
            for index in range(len(num_characters)):
                yield await asyncio.to_thread(self._echo, index)
        async for new in stream.texts():
            index = new.request * self._num_samples + new.sample
            yield self._chunk(index, new.text, self._logprobs(new.tokens, num_characters[index]))
            num_characters[index] += len(new.text)
        found = stream.answers()
        for index in range(len(num_characters)):
            number, sample = divmod(index, self._num_samples)
            finish = _finish_reason(found[number], sample) if found else "length"
            yield self._chunk(index, "", None, finish)
        if self.body.stream_options is not None and self.body.stream_options.include_usage:
            yield {**self._head, "choices": [], "usage": self._usage(found)}
        yield DONE

    def _echo(self, index: int) -> str:
        number = index // self._num_samples
        logprobs = self._logprobs(self._prompt_tokens[number], 0)
        return json_in_pieces(self._chunk(index, self._prompts[number].text, logprobs))

    def _chunk(
        self, index: int, text: str, logprobs: dict[str, Any] | None, finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
        return {**self._head, "choices": [choice]}

    def _logprobs(self, tokens: Sequence[WrittenToken], first_character: int) -> dict[str, Any] | None:
        return None if self.body.logprobs is None else log_probabilities(tokens, first_character)

    def _usage(self, found: Sequence[Answer]) -> dict[str, int]:
        if found:
            num_read = sum(one.num_prompt_tokens for one in found)
        else:
            tokenizer = self._worker.model.tokenizer
            num_read = sum(len(tokenizer.encode_bytes(one.data)) + 1 for one in self._prompts)
        num_written = sum(text.completion.num_tokens for one in found for text in one.texts)
        return {
            "prompt_tokens": num_read,
            "completion_tokens": num_written,
            "total_tokens": num_read + num_written,
        }


def _finish_reason(answer: Answer, sample: int) -> str:
    return "length" if answer.texts[sample].completion.finish == "length" else "stop"
