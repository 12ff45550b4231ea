"""`permcode complete`: continues prompts from left to right."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.options import (
    Beam,
    Num,
    Run,
    SamplingOptions,
    Seed,
    Task,
    Temperature,
    TopK,
    TopP,
)
from pipeline.commands.text_output import TextOutput, ends_quietly
from pipeline.folder.task_folder import task_folder
from pipeline.folder.user_files import STANDARD_INPUT, TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.language_model import PermutationLM
    from pretrain.inference.results import Completion
    from pretrain.inference.sampling import Sampling

DEFAULT_TEMPERATURE = 0.8
_SIDE_BY_SIDE = 16
"""The number of texts of one prompt that are sampled in one batch."""


@dataclass(frozen=True)
class CompleteRequest:
    """The prompts of a command: `prompt` (as typed; "-" is standard input) or `files`, completed `num` times each."""

    run: Path
    prompt: str | None
    files: list[Path]
    max_tokens: int
    options: SamplingOptions
    num: int
    stop: list[str]
    echo: bool


def write_completions(request: CompleteRequest, output: TextOutput) -> None:
    """Write every completion; a single one on a terminal token by token. Raises UserError before the first byte."""
    prompts = _prompts(request)
    sampling = request.options.sampling(DEFAULT_TEMPERATURE, request.num)

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run, on_damaged=warn)
    if output.is_terminal and len(prompts) * request.num == 1 and request.options.beam is None:
        _stream(model, request, prompts[0], sampling, output)
        return
    if request.num > _SIDE_BY_SIDE and request.options.beam is None:
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
    """Write the texts batch by batch as they are sampled, so that any number needs the same memory."""

    def sample(prompt: TextFile, first: int) -> "list[Completion]":
        num = min(_SIDE_BY_SIDE, request.num - first)
        return _complete_batch(model, request, [prompt], sampling, num, first)

    # The first batch of every prompt is sampled before anything is written: no output if the model refuses a prompt.
    first_batches = [sample(prompt, 0) for prompt in prompts]
    for prompt, first_batch in zip(prompts, first_batches, strict=True):
        for first in range(0, request.num, _SIDE_BY_SIDE):
            for number, one in enumerate(sample(prompt, first) if first else first_batch, start=first + 1):
                output.header(_name(prompt, len(prompts), number, request.num))
                output.write(prompt.data * request.echo + one.data)
            output.flush()
    output.end_line()


def _name(prompt: TextFile, num_prompts: int, number: int, num: int) -> str:
    parts = [prompt.name] * (num_prompts > 1) + [f"{number} of {num}"] * (num > 1)
    return ", ".join(parts)


def _prompts(request: CompleteRequest) -> list[TextFile]:
    if (request.prompt is None) == (not request.files):
        raise UserError("give what to complete in one way: a PROMPT, - for standard input, or --file FILE")
    if request.prompt is None:
        return [read_text_file(path) for path in request.files]
    if request.prompt == str(STANDARD_INPUT):
        return [read_text_file(STANDARD_INPUT)]
    if not request.prompt:
        raise UserError("the prompt is empty: give at least one character")
    return [TextFile("the prompt", os.fsencode(request.prompt))]


def _complete(
    model: "PermutationLM", request: CompleteRequest, prompts: list[TextFile], sampling: "Sampling"
) -> "list[list[Completion]]":
    """Return the completions of each prompt; a beam search may find fewer than `num`."""
    if request.options.beam is not None:
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
        beam=request.options.beam,
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
        # The prompt is written with the first new token, so that nothing is written if the model refuses the prompt.
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


def complete(
    run: Run,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help='The text to continue; "-" is standard input.', show_default=False
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read a prompt from a file; may be repeated."),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, help="Write at most N tokens.")
    ] = 64,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = None,
    num: Num = 1,
    seed: Seed = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="Stop before this text; may be repeated."),
    ] = None,
    until_line: Annotated[bool, typer.Option("--until-line", help="Stop at the end of the line.")] = False,
    echo: Annotated[bool, typer.Option("--echo", help="Write the prompt first.")] = False,
    task: Task = None,
) -> None:
    """Continue a prompt from left to right. Only the new text is written.

    By default tokens are sampled at temperature 0.8. On a terminal a single text is written token by token. Several
    texts each have a header line, as with `head`.

    \b
    permcode complete runs/demo "def main("
    permcode complete runs/demo --file src/main.py --max-tokens 200 --temperature 0
    git diff | permcode complete runs/demo - --until-line
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        options = SamplingOptions(temperature, top_k, top_p, beam, seed)
        stops = [*(stop or []), *(["\n"] if until_line else [])]
        request = CompleteRequest(
            task_folder(run, task), prompt, file or [], max_tokens, options, num, stops, echo
        )
        write_completions(request, TextOutput())
