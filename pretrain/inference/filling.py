"""The ways to fill holes: of known or unknown length, from left to right or in another order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.errors import UserError
from pretrain.inference.any_order import FillingOrder, fill_any_order
from pretrain.inference.generation import Generated
from pretrain.inference.infilling import (
    Wanted,
    check_lengths,
    fill_known_length,
    fill_unknown_length,
    place_lengths,
)
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.session import Decoder
from pretrain.inference.vocabulary import TokenRules, specials_but

_MAX_SAMPLES = 1024


@dataclass(frozen=True)
class FillingWay:
    """How holes get their tokens: `num_samples` times or by a beam, up to `at_once` of them in two passes.

    From left to right, one after the other, several holes are filled side by side, in at most `max_lanes` lanes.
    """

    sampling: Sampling = GREEDY
    beam: int | None = None
    num_samples: int = 1
    order: FillingOrder = "left_to_right"
    at_once: int = 1
    max_lanes: int = 32

    def __post_init__(self) -> None:
        if self.num_samples > _MAX_SAMPLES:
            raise UserError(
                f"a hole can be filled {_MAX_SAMPLES} times at once, got {self.num_samples}: ask for fewer"
            )

    @property
    def one_by_one(self) -> bool:
        """Whether tokens are chosen one after the other from left to right."""
        return self.order == "left_to_right" and self.at_once == 1


def fill_holes(
    decoder: Decoder, holes: Sequence[Wanted], way: FillingWay, end_hole_id: int | None
) -> list[list[Generated]]:
    """The fillings of every hole. With `end_hole_id` lengths are not known, and this token ends a filling."""
    if way.one_by_one:
        fill, end = (fill_known_length, None) if end_hole_id is None else (fill_unknown_length, "<end_hole>")
        rules = TokenRules(specials_but(end), end_hole_id)
        check_lengths(decoder, holes, rules)
        found = []
        for batch in _batches(holes, way, end_hole_id is not None):
            found += fill(decoder, batch, way.sampling, rules, num_samples=way.num_samples, beam=way.beam)
        return found
    if end_hole_id is not None or way.beam is not None:
        raise UserError(
            "filling the surest places first, or several at once, needs a hole of known length and no beam: "
            "give the length in tokens"
        )
    return [_any_order(decoder, one, way) for one in holes]


def _batches(holes: Sequence[Wanted], way: FillingWay, has_places: bool) -> Iterator[list[Wanted]]:
    """Runs of holes that fill the lanes; one hole at least."""
    batch: list[Wanted] = []
    num_lanes = 0
    for one in holes:
        num_layouts = len(place_lengths(one.num_tokens)) if has_places else 1
        own = num_layouts * (way.beam or way.num_samples)
        if batch and num_lanes + own > way.max_lanes:
            yield batch
            batch, num_lanes = [], 0
        batch.append(one)
        num_lanes += own
    if batch:
        yield batch


def _any_order(decoder: Decoder, hole: Wanted, way: FillingWay) -> list[Generated]:
    fillings = [
        fill_any_order(
            decoder,
            hole.sides,
            hole.num_tokens,
            way.sampling,
            TokenRules(specials_but(None)),
            at_once=way.at_once,
            order=way.order,
            sample=hole.first_sample + sample,
        )
        for sample in range(way.num_samples)
    ]
    return [Generated(one.tokens, one.log_likelihood, ended=False) for one in fillings]
