"""Arguments and options that several commands share, and the sampling settings made from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError

if TYPE_CHECKING:
    from pretrain.inference.sampling import Sampling


@dataclass(frozen=True)
class SamplingOptions:
    """The options that control how tokens are chosen; None where the user gave none."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    beam: int | None
    seed: int

    def sampling(self, default_temperature: float, num: int) -> "Sampling":
        """Return the model's sampling settings for `num` texts. Raises UserError for contradictory options."""
        from pretrain.inference.sampling import Sampling

        if self.beam is not None:
            self._check_beam(self.beam, num)
            return Sampling()
        temperature = default_temperature if self.temperature is None else self.temperature
        if num > 1 and temperature == 0.0:
            raise UserError(
                f"--num {num} at temperature 0 would be the same text {num} times: give a --temperature above 0 "
                f"or --beam {num}"
            )
        return Sampling(temperature, self.top_k, self.top_p, self.seed)

    def _check_beam(self, beam: int, num: int) -> None:
        sampling_options = {"--temperature": self.temperature, "--top-k": self.top_k, "--top-p": self.top_p}
        for option, value in sampling_options.items():
            if value is not None:
                raise UserError(
                    f"--beam does not sample, so {option} cannot go with it: leave one of them out"
                )
        if num > beam:
            raise UserError(
                f"--num {num} is larger than --beam {beam}: a beam search returns at most {beam} texts"
            )


Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The folder of a run, a stage, a checkpoint or a model.",
        show_default=False,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="T",
        help="Use the network that a run's task T finetuned, by the task's name or kind.",
    ),
]
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help='Files; "-" is standard input.', show_default=False)
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", metavar="T", min=0.0, help="0 always takes the most likely token."),
]
TopK = Annotated[
    int | None, typer.Option("--top-k", metavar="K", min=1, help="Sample only from the K most likely tokens.")
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        min=0.0,
        max=1.0,
        help="Sample only from the fewest tokens with probability P in total.",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option(
        "--beam", metavar="N", min=1, help="Search for the most likely text with a beam of width N."
    ),
]
Num = Annotated[int, typer.Option("--num", "-n", metavar="N", min=1, help="The number of texts to write.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed samples the same text.")]
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A run's --out folder, or a finished prep folder.", show_default=False
    ),
]
TaskOfRun = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="T",
        help="The task of a run, by name or kind; needed if the run has several.",
    ),
]
