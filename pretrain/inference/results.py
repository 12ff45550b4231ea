"""What a model has written, as text."""

from dataclasses import dataclass

from pretrain.inference.generation import Generated
from pretrain.inference.text_stream import TextStream


@dataclass(frozen=True)
class Completion:
    """The continuation of a prompt. `finish` is "end" (of the text), "stop" (a stop string) or "length" (it was cut).

    `data` are the bytes of `text`; `log_likelihood` (nats) is that of all chosen tokens, at temperature 1.
    """

    text: str
    data: bytes
    num_tokens: int
    log_likelihood: float
    finish: str

    @classmethod
    def of(cls, generated: Generated, stream: TextStream) -> "Completion":
        """Make it from generated tokens and their text."""
        ended = generated.ended and not generated.forced
        finish = "stop" if generated.stopped else "end" if ended else "length"
        return cls(stream.text, stream.data, len(generated.tokens), generated.log_likelihood, finish)


@dataclass(frozen=True)
class FilledHoles:
    """The fillings of all holes of a text, in its order.

    `order` has their numbers in the order in which they were begun. `log_likelihood` (nats, at temperature 1) is the
    joint one of all chosen tokens, exact for the order in which they were chosen; `num_passes` is the number of the
    model's passes that chose them.
    """

    holes: tuple[Completion, ...]
    order: tuple[int, ...]
    log_likelihood: float
    num_passes: int
