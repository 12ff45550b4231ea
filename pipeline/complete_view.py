"""What `permcode complete` writes: prompts go in, what follows them comes out."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UserError
from pipeline.drawing import DrawingOptions
from pipeline.exit_codes import warn
from pipeline.streaming import TextOutput
from pipeline.text_files import STANDARD_INPUT, TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.language_model import Completion, PermutationLM
    from pretrain.inference.sampling import Sampling

DEFAULT_TEMPERATURE = 0.8
_SIDE_BY_SIDE = 16
"""Texts of one prompt that are drawn together."""


@dataclass(frozen=True)
class CompleteRequest:
    """What to complete: `prompt` (as typed; "-" is standard input) or files, `num` times each."""

    run: Path
    prompt: str | None
    files: list[Path]
    max_tokens: int
    drawing: DrawingOptions
    num: int
    stop: list[str]
    echo: bool


def write_completions(request: CompleteRequest, output: TextOutput) -> None:
    """Write every completion, one that is watched on a terminal token by token. UserError before the first byte."""
    prompts = _prompts(request)
    sampling = request.drawing.sampling(DEFAULT_TEMPERATURE, request.num)

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run, on_damaged=warn)
    if output.is_terminal and len(prompts) * request.num == 1 and request.drawing.beam is None:
        _stream(model, request, prompts[0], sampling, output)
        return
    if request.num > _SIDE_BY_SIDE and request.drawing.beam is None:
        _write_many(model, request, prompts, sampling, output)
        return
    texts = []
    for prompt, completions in zip(prompts, _complete(model, request, prompts, sampling), strict=True):
        for number, one in enumerate(completions, start=1):
            name = _name(prompt, len(prompts), number, len(completions))
            texts.append((name, prompt.data * request.echo + one.data))
    output.write_all(texts)


def _write_many(
    model: "PermutationLM",
    request: CompleteRequest,
    prompts: list[TextFile],
    sampling: "Sampling",
    output: TextOutput,
) -> None:
    """Texts are written as they are drawn, those drawn side by side at once: any number takes the same memory."""

    def drawn(prompt: TextFile, first: int) -> "list[Completion]":
        num = min(_SIDE_BY_SIDE, request.num - first)
        return _complete_batch(model, request, [prompt], sampling, num, first)

    # The first of all prompts, before anything is written: a prompt that the model refuses writes nothing.
    beginnings = [drawn(prompt, 0) for prompt in prompts]
    for prompt, beginning in zip(prompts, beginnings, strict=True):
        for first in range(0, request.num, _SIDE_BY_SIDE):
            for number, one in enumerate(drawn(prompt, first) if first else beginning, start=first + 1):
                output.header(_name(prompt, len(prompts), number, request.num))
                output.write(prompt.data * request.echo + one.data)
            output.flush()
    output.end_line()


def _name(prompt: TextFile, num_prompts: int, number: int, num: int) -> str:
    parts = [prompt.name] * (num_prompts > 1) + [f"{number} of {num}"] * (num > 1)
    return ", ".join(parts)


def _prompts(request: CompleteRequest) -> list[TextFile]:
    if (request.prompt is None) == (not request.files):
        raise UserError("say what to complete once: a PROMPT, - for standard input, or --file FILE")
    if request.prompt is None:
        return [read_text_file(path) for path in request.files]
    if request.prompt == str(STANDARD_INPUT):
        return [read_text_file(STANDARD_INPUT)]
    if not request.prompt:
        raise UserError("the prompt is empty: give at least one character to go on from")
    return [TextFile("the prompt", os.fsencode(request.prompt))]


def _complete(
    model: "PermutationLM", request: CompleteRequest, prompts: list[TextFile], sampling: "Sampling"
) -> "list[list[Completion]]":
    """For each prompt its completions; a beam may find fewer than were asked for."""
    if request.drawing.beam is not None:
        return [_complete_batch(model, request, [prompt], sampling, request.num) for prompt in prompts]
    found = _complete_batch(model, request, prompts, sampling, request.num)
    return [found[first : first + request.num] for first in range(0, len(found), request.num)]


def _complete_batch(
    model: "PermutationLM",
    request: CompleteRequest,
    prompts: list[TextFile],
    sampling: "Sampling",
    num: int,
    first: int = 0,
) -> "list[Completion]":
    return model.complete(
        [prompt.data for prompt in prompts],
        max_new_tokens=request.max_tokens,
        sampling=sampling,
        beam=request.drawing.beam,
        num_samples=num,
        first_sample=first,
        stop=[os.fsencode(one) for one in request.stop],
    )


def _stream(
    model: "PermutationLM",
    request: CompleteRequest,
    prompt: TextFile,
    sampling: "Sampling",
    output: TextOutput,
) -> None:
    waiting = prompt.data * request.echo

    def show(_number: int, text: str) -> None:
        # The prompt waits for the first new token: input that the model refuses writes nothing.
        nonlocal waiting
        output.write(waiting)
        waiting = b""
        output.write_text(text)

    model.complete(
        [prompt.data],
        max_new_tokens=request.max_tokens,
        sampling=sampling,
        stop=[os.fsencode(one) for one in request.stop],
        on_text=show,
    )
    output.write(waiting)
    output.end_line()
