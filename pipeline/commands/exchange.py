"""`permcode import` and `permcode export`: convert models from and to other libraries' formats."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.folder.user_files import check_place


class Format(StrEnum):
    """The formats that a model can be imported from and exported to."""

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
            help="The length of the segment memory in positions; default: the checkpoint's mem_len.",
        ),
    ] = None,
) -> None:
    """Convert a model of another library to a model folder of permcode.

    The weights stay exactly the same. A tokenizer that is not permcode's is only stored: such a model can be used from
    Python with token ids, and exported again; commands that read text refuse it.

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
            reporter.line("its tokenizer is not permcode's: stored for an export, not used on text")


def export_model(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The folder of a run, a stage, a checkpoint or a model.", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder to write; must not exist.", show_default=False),
    ],
    target_format: Annotated[
        Format,
        typer.Option("--to", help="hf: a folder that transformers loads as XLNetLMHeadModel and tokenizer."),
    ],
) -> None:
    """Convert a model of permcode to another library's format.

    Writes weights, config and tokenizer; `transformers` then computes the same numbers. A model that XLNet cannot
    express, such as one with the pre-norm of the recipe demo, is refused.

    \b
    permcode export runs/tiny --to hf exported/tiny
    """
    with exit_codes(None):
        check_place(out, "the folder")

        from pretrain.hf.export_import import export_to_hf

        files = export_to_hf(source, out, on_damaged=warn)
        Reporter().line(f"{out}: the model of {files.folder}")
