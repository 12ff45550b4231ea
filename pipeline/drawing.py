"""How the commands that write text choose their tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.errors import UserError

if TYPE_CHECKING:
    from pretrain.inference.sampling import Sampling


@dataclass(frozen=True)
class DrawingOptions:
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
