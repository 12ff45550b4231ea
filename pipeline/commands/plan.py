"""`permcode plan`: estimates parameters, memory, time and cost of a run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes
from pretrain.config import PretrainConfig
from pretrain.plan.flops import Flops, forward_flops
from pretrain.plan.gpu_memory import (
    GIB,
    ZERO_STAGES,
    gpu_memory,
    misfit,
    needed_bytes,
    passes_bytes,
)
from pretrain.plan.hardware import GPUS, Gpu, find_gpu
from pretrain.plan.parameters import count_parameters

if TYPE_CHECKING:
    from pipeline.folder.config import RunConfig
    from pretrain.model.config import Recompute

_RECOMPUTED: "tuple[Recompute, ...]" = ("attention", "layers")
_HELD = ("weights", "gradients", "masters_and_moments", "segment_memory", "reserve")


@dataclass(frozen=True)
class Assumptions:
    """The user's assumptions about tokens, utilisation and price."""

    tokens: float | None
    """The token budget; None stands for the recipe's steps."""
    utilisation: float | None
    """The share of their peak that GPUs reach; None stands for a prediction."""
    usd_per_hour: float | None
    """The price of a GPU; None stands for the price in permcode's table."""


def plan_lines(run: "RunConfig", gpu: Gpu | None, assumed: Assumptions) -> Iterable[str]:
    """Yield tables of parameters, FLOPs, memory and time; the time on `gpu`, or on all known GPUs."""
    config, vocab_size = run.pretrain, run.prep.tokenizer.vocab_size
    yield from _parameter_lines(config, vocab_size)
    yield ""
    yield from _flops_lines(config, vocab_size)
    yield ""
    yield from _memory_lines(config, vocab_size)
    yield ""
    yield from _time_lines(config, vocab_size, [gpu] if gpu else list(GPUS), assumed)


def _parameter_lines(config: PretrainConfig, vocab_size: int) -> list[str]:
    counted = count_parameters(config.model, vocab_size)
    rows = [
        (_words(part), f"{number:,}", _percent(number, counted.total))
        for part, number in counted.by_part().items()
        if number
    ]
    rows.append(("total", f"{counted.total:,}", ""))
    return _table(("parameters", f"vocabulary {vocab_size:,}", "share"), rows)


def _flops(config: PretrainConfig, vocab_size: int) -> Flops:
    length = config.segment_tokens
    return forward_flops(
        config.model,
        config.micro_batch_lanes,
        length,
        config.objective.num_targets(length),
        vocab_size,
        config.objective.extent(length),
    )


def _flops_lines(config: PretrainConfig, vocab_size: int) -> list[str]:
    flops = _flops(config, vocab_size)
    tokens = config.micro_batch_lanes * config.segment_tokens
    rows = [
        (_words(part), _mega(number / tokens), _percent(number, flops.forward))
        for part, number in flops.by_part().items()
        if number
    ]
    rows.append(("forward", _mega(flops.forward / tokens), ""))
    rows.append(("training", _mega(flops.training() / tokens), ""))
    for recompute in _RECOMPUTED:
        rows.append((f"training, {recompute} recomputed", _mega(flops.training(recompute) / tokens), ""))
    num_targets = config.objective.num_targets(config.segment_tokens)
    return [
        *_table(("FLOPs per corpus token", "millions", "share"), rows),
        f"segments of {config.segment_tokens:,} tokens, {num_targets:,} of them predicted, "
        f"memory {config.model.memory_tokens:,}",
    ]


def _memory_lines(config: PretrainConfig, vocab_size: int) -> list[str]:
    by_policy = {
        recompute: [
            gpu_memory(config.model_copy(update={"recompute": recompute}), vocab_size, stage)
            for stage in ZERO_STAGES
        ]
        for recompute in ("none", *_RECOMPUTED)
    }
    kept = by_policy["none"]
    rows = [(_words(name), *(_gib(getattr(memory, name)) for memory in kept)) for name in _HELD]
    rows.append(("optimizer step", *(_gib(memory.optimizer_step) for memory in kept)))
    for recompute, memories in by_policy.items():
        rows.append((f"passes, recompute={recompute}", *(_gib(memory.passes) for memory in memories)))
    for recompute, memories in by_policy.items():
        rows.append((f"total, recompute={recompute}", *(_gib(memory.total) for memory in memories)))
    plain = passes_bytes(config, vocab_size, with_kernels=False) - passes_bytes(config, vocab_size)
    return [
        *_table(("memory per GPU, GiB", *(f"ZeRO {stage}" for stage in ZERO_STAGES)), rows),
        f"GPUs: {config.max_workers:,}, with {config.lanes // config.max_workers:,} lanes each, "
        f"{config.micro_batch_lanes:,} at a time, {config.precision}; the optimizer step comes after the backward "
        "pass, so the larger counts",
        f"attention and loss by the kernels for GPUs; plain operations need {_gib(plain)} GiB more",
        f"this run: ZeRO {config.zero_stage}, recompute={config.recompute}, "
        f"{_gib(needed_bytes(config, vocab_size))} GiB",
    ]


def _time_lines(
    config: PretrainConfig, vocab_size: int, gpus: Sequence[Gpu], assumed: Assumptions
) -> list[str]:
    budget = assumed.tokens or config.num_steps * config.tokens_per_step
    num_steps = math.ceil(budget / config.tokens_per_step)
    tokens = num_steps * config.tokens_per_step
    needed = needed_bytes(config, vocab_size)
    rows = []
    for gpu in gpus:
        price = gpu.usd_per_hour if assumed.usd_per_hour is None else assumed.usd_per_hour
        step_s, utilisation = _step(config, vocab_size, gpu, assumed)
        seconds = num_steps * step_s
        rows.append(
            (
                f"{config.max_workers:,} x {gpu.name}",
                f"{gpu.memory_gib}",
                "yes" if needed <= gpu.memory_bytes else "no",
                f"{utilisation:.0%}",
                f"{tokens / seconds:,.0f}",
                _amount(seconds / 3600),
                f"{price:.2f}",
                _amount(seconds / 3600 * config.max_workers * price),
            )
        )
    header = ("time and cost", "GiB", "fits", "of peak", "tokens/s", "hours", "USD/hour", "USD")
    how = (
        "predicted from counted operations, bytes and tiles, without the network; no GPU has confirmed it"
        if assumed.utilisation is None
        else f"assumed, not measured: {assumed.utilisation:.0%} of the peak (--mfu)"
    )
    return [
        *_table(header, rows),
        f"{tokens:,} tokens in {num_steps:,} steps of {config.tokens_per_step:,}",
        f"{how}; and the price of an hour (--price)",
    ]


def _step(config: PretrainConfig, vocab_size: int, gpu: Gpu, assumed: Assumptions) -> tuple[float, float]:
    """Return the seconds of a step and the share of the peak, predicted or from the assumed share.

    The assumed share counts what is recomputed as work.
    """
    if assumed.utilisation is None:
        from pretrain.plan.step_time import predicted_step

        step = predicted_step(config, vocab_size, gpu)
        return step.seconds, step.utilisation(gpu, config.precision)
    passes = config.lanes / config.max_workers / config.micro_batch_lanes
    flops = passes * _flops(config, vocab_size).training(config.recompute)
    return flops / (assumed.utilisation * gpu.peak_flops(config.precision)), assumed.utilisation


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}"


def _mega(number: float) -> str:
    return f"{number / 1e6:,.2f}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f}"


def _amount(value: float) -> str:
    if value < 1:
        return f"{value:.2g}"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def plan(
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", metavar="NAME_OR_FILE", help="A recipe's name or a YAML file.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Overrides of the recipe.", show_default=False),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option("--tokens", metavar="N", help="Token budget; default: the recipe's steps."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="One kind of GPU; default: all known ones."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", metavar="N", help="The number of GPUs; default: the recipe's workers."),
    ] = None,
    mfu: Annotated[
        float | None,
        typer.Option(
            "--mfu", metavar="SHARE", help="The share of their peak that GPUs reach; default: predicted."
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="USD", help="The price of one GPU for one hour.")
    ] = None,
) -> None:
    """Estimate parameters, FLOPs, memory, time and cost of a pretraining run.

    Only the recipe is read. Exit code 2 if the run does not fit the GPU, with settings that fit.

    \b
    permcode plan --recipe base
    permcode plan --recipe large --tokens 30e9 --gpu h100 --gpus 64 pretrain.micro_batch_lanes=8
    """
    with exit_codes(None, only_shows=True):
        from pipeline.folder.recipe import load_run_config

        for name, value in (("--tokens", tokens), ("--mfu", mfu), ("--price", price)):
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} {value:g} must be a number above 0")
        if mfu is not None and mfu > 1:
            raise UserError(f"--mfu {mfu:g} is more than the whole peak: give a share such as 0.4")
        chosen = find_gpu(gpu) if gpu else None
        workers = [] if gpus is None else [f"pretrain.num_workers={gpus}"]
        run = load_run_config(recipe, [*(overrides or []), *workers])

        try:
            lines = list(plan_lines(run, chosen, Assumptions(tokens, mfu, price)))
            gpu_to_fit = chosen or max(GPUS, key=lambda known: known.memory_bytes)
            vocab_size = run.prep.tokenizer.vocab_size
            problem = misfit(run.pretrain, vocab_size, gpu_to_fit.memory_bytes, gpu_to_fit.name)
        # PyTorch's errors for tensors beyond 64 bits, and Python's for numbers beyond the range of floats.
        except (RuntimeError, OverflowError, MemoryError) as error:
            raise UserError(
                f"the run is too large to plan ({first_line(error)}): use smaller segments, batches, budgets or models"
            ) from None
        for line in lines:
            Reporter().line(line)
        if problem is not None:
            raise UserError(problem)
