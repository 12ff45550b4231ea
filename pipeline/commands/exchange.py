"""`permcode import` and `permcode export`: models from and to other libraries' formats."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.folder.user_files import check_place


class Format(StrEnum):
    """Formats a model can come from and go to."""

    HF = "hf"


def import_model(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder in Hugging Face's format.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="MODEL", help="The model folder to write; must not exist.")
    ],
    source_format: Annotated[
        Format, typer.Option("--from", help="hf: Hugging Face's XLNetLMHeadModel (config.json, safetensors).")
    ],
    memory_tokens: Annotated[
        int | None,
        typer.Option(
            "--memory-tokens",
            metavar="M",
            min=0,
            help="How many positions of the past are attended to; the checkpoint's mem_len if not given.",
        ),
    ] = None,
) -> None:
    """A model of another library to a model folder of permcode.

    The weights are taken over exactly. A tokenizer that is none of permcode's is only kept: such a model can be used
    from Python, on tokens' ids, and exported again; commands on text refuse it.

    \b
    permcode import --from hf xlnet-base --out models/xlnet-base
    permcode import --from hf xlnet-base --out models/xlnet-base --memory-tokens 384
    """
    with exit_codes(None):
        check_place(out)

        from pretrain.hf.export_import import import_from_hf

        imported = import_from_hf(folder, out, memory_tokens)
        config = imported.config
        reporter = Reporter()
        reporter.line(
            f"{out}: {imported.num_parameters:,} parameters, {config.num_layers} layers of {config.model_dim}, "
            f"memory of {config.memory_tokens} tokens"
        )
        if not imported.reads_text:
            reporter.line("its tokenizer is none of permcode's: kept for an export, not used on text")


def export_model(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run's, a stage's, a checkpoint's or a model's folder.", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder to write; must not exist.", show_default=False),
    ],
    target_format: Annotated[
        Format, typer.Option("--to", help="hf: what transformers loads as XLNetLMHeadModel and tokenizer.")
    ],
) -> None:
    """A model of permcode to another library's format.

    Weights, config and tokenizer; `transformers` then computes the same numbers. What XLNet cannot express, such as the
    pre-norm of the recipe demo, is refused.

    \b
    permcode export runs/tiny --to hf exported/tiny
    """
    with exit_codes(None):
        check_place(out, "the folder")

        from pretrain.hf.export_import import export_to_hf

        files = export_to_hf(source, out, on_damaged=warn)
        Reporter().line(f"{out}: the model of {files.folder}")
