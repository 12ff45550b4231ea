"""What `permcode complete` writes: prompts go in, what follows them comes out."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UserError
from pipeline.streaming import TextOutput
from pipeline.text_files import STANDARD_INPUT, TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.language_model import Completion, PermutationLM
    from pretrain.inference.sampling import Sampling

DEFAULT_TEMPERATURE = 0.8


@dataclass(frozen=True)
class DrawingOptions:
    """How tokens are chosen; None where the user said nothing."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    beam: int | None
    seed: int

    def sampling(self, default_temperature: float) -> "Sampling":
        """The same for the model. Raises UserError for options that contradict each other."""
        from pretrain.inference.sampling import Sampling

        if self.beam is None:
            temperature = default_temperature if self.temperature is None else self.temperature
            return Sampling(temperature, self.top_k, self.top_p, self.seed)
        drawing = {"--temperature": self.temperature, "--top-k": self.top_k, "--top-p": self.top_p}
        for option, value in drawing.items():
            if value is not None:
                raise UserError(f"--beam draws nothing, so {option} cannot go with it: leave one of them out")
        return Sampling()


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
    sampling = request.drawing.sampling(DEFAULT_TEMPERATURE)
    beam = request.drawing.beam
    if beam is not None and request.num > beam:
        raise UserError(f"--num {request.num} of --beam {beam}: a beam holds as many texts as it is wide")

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run)
    if output.is_terminal and len(prompts) * request.num == 1 and beam is None:
        _stream(model, request, prompts[0], sampling, output)
        return
    completions = _complete(model, request, [prompt.data for prompt in prompts], sampling)
    for number, completion in enumerate(completions):
        prompt, sample = prompts[number // request.num], number % request.num
        if len(completions) > 1:
            output.header(_name(request, prompt, sample, len(prompts) > 1))
        output.write(prompt.data * request.echo + completion.data)
    if output.is_terminal or len(completions) > 1:
        output.end_line()


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
    model: "PermutationLM", request: CompleteRequest, prompts: list[bytes], sampling: "Sampling"
) -> "list[Completion]":
    return model.complete(
        prompts,
        max_new_tokens=request.max_tokens,
        sampling=sampling,
        num_samples=request.num,
        stop=request.stop,
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
        stop=request.stop,
        on_text=show,
    )
    output.write(waiting)
    output.end_line()


def _name(request: CompleteRequest, prompt: TextFile, sample: int, has_several_prompts: bool) -> str:
    number = f"{sample + 1} of {request.num}"
    if not has_several_prompts:
        return number
    return prompt.name if request.num == 1 else f"{prompt.name}, {number}"
