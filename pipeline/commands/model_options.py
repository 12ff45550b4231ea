"""Options that the commands that use a model share, and how the tokens they write are chosen."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError

if TYPE_CHECKING:
    from pretrain.inference.sampling import Sampling


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are chosen; None where the user said nothing."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    beam: int | None
    seed: int

    def sampling(self, default_temperature: float, num: int) -> "Sampling":
        """The same for the model that writes `num` texts. Raises UserError for options that contradict each other."""
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
        drawing = {"--temperature": self.temperature, "--top-k": self.top_k, "--top-p": self.top_p}
        for option, value in drawing.items():
            if value is not None:
                raise UserError(f"--beam draws nothing, so {option} cannot go with it: leave one of them out")
        if num > beam:
            raise UserError(f"--num {num} of --beam {beam}: a beam holds as many texts as it is wide")


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
        help="Of a run: the network that its task T adapted, by the task's name or kind.",
    ),
]
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help='Files; "-" is standard input.', show_default=False)
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", metavar="T", min=0.0, help="0 takes the likeliest token every time."),
]
TopK = Annotated[
    int | None, typer.Option("--top-k", metavar="K", min=1, help="Draw only from the K likeliest tokens.")
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        min=0.0,
        max=1.0,
        help="Draw only from the fewest tokens that hold P of all.",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option("--beam", metavar="N", min=1, help="Search for the likeliest text, N texts side by side."),
]
Num = Annotated[int, typer.Option("--num", "-n", metavar="N", min=1, help="How many texts to write.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed draws the same text.")]
