"""`permcode plan`: what a run will take, before anything runs."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from pipeline.exit_codes import exit_codes

if TYPE_CHECKING:
    from pipeline.config import RunConfig
    from pretrain.plan.hardware import Gpu


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
        typer.Option("--tokens", metavar="N", help="Token budget; the recipe's steps if not given."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="One kind of GPU; all known ones if not given."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="How many; the recipe's workers if not given.")
    ] = None,
    mfu: Annotated[
        float,
        typer.Option("--mfu", metavar="SHARE", help="Share of the peak that GPUs reach: an assumption."),
    ] = 0.4,
    price: Annotated[
        float | None, typer.Option("--price", metavar="USD", help="Of one GPU for one hour.")
    ] = None,
) -> None:
    """Parameters, FLOPs, memory, time and cost of a pretraining run.

    Reads the recipe only. Ends with exit code 2 where the run does not fit the GPU, and says what would.

    \b
    permcode plan --recipe base
    permcode plan --recipe large --tokens 30e9 --gpu h100 --gpus 64 pretrain.micro_batch_lanes=8
    """
    with exit_codes(None, only_shows=True):
        from pipeline.recipe import load_run_config
        from pretrain.plan.hardware import find_gpu

        for name, value in (("--tokens", tokens), ("--mfu", mfu), ("--price", price)):
            _check_positive(name, value)
        if mfu > 1:
            raise UserError(f"--mfu {mfu:g} is more than the whole peak: give a share such as 0.4")
        chosen = find_gpu(gpu) if gpu else None
        workers = [] if gpus is None else [f"pretrain.num_workers={gpus}"]
        run = load_run_config(recipe, [*(overrides or []), *workers])

        from pipeline.plan_view import Assumptions, plan_lines

        try:
            lines = list(plan_lines(run, chosen, Assumptions(tokens, mfu, price)))
            misfit = _misfit(run, chosen)
        # What PyTorch raises for tensors beyond 64 bits, and Python for numbers beyond a float's.
        except (RuntimeError, OverflowError, MemoryError) as error:
            raise UserError(
                f"the run is too large to plan ({first_line(error)}): use smaller segments, batches, budgets or models"
            ) from None
        for line in lines:
            Reporter().line(line)
        if misfit is not None:
            raise UserError(misfit)


def _check_positive(option: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise UserError(f"{option} {value:g} must be a number above 0")


def _misfit(run: "RunConfig", chosen: "Gpu | None") -> str | None:
    """By how much a run does not fit the chosen GPU, or else the largest, and the smallest change that helps."""
    from pretrain.plan.fit import needed_bytes, smallest_change
    from pretrain.plan.hardware import GPUS
    from pretrain.plan.memory import GIB

    config, vocab_size = run.pretrain, run.prep.tokenizer.vocab_size
    gpu = chosen or max(GPUS, key=lambda known: known.memory_bytes)
    needed = needed_bytes(config, vocab_size)
    if needed <= gpu.memory_bytes:
        return None
    change = smallest_change(config, vocab_size, gpu.memory_bytes)
    if change is None:
        remedy = "no micro batch and no checkpointing helps; use more GPUs, larger ones or fewer lanes"
    else:
        settings = " ".join(f"pretrain.{key}={str(value).lower()}" for key, value in change.values.items())
        remedy = f"it fits with {settings} ({change.needed_bytes / GIB:.1f} GiB)"
    return (
        f"the run needs {needed / GIB:.1f} GiB on each GPU, {(needed - gpu.memory_bytes) / GIB:.1f} more than the "
        f"{gpu.memory_gib} of {gpu.name}: {remedy}"
    )
