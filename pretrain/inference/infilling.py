"""Infilling of holes of known or unknown length, token ids in and out; several texts are decoded side by side.

Shapes: B lanes, T steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.any_order import FillingOrder, fill_any_order
from pretrain.inference.beam import beam_search
from pretrain.inference.decoder import Decoder
from pretrain.inference.generation import Generated, OnToken, Rating, Writing, generate
from pretrain.inference.history import HistoryCache
from pretrain.inference.hole import Hole, Holes, Sides, check_place
from pretrain.inference.sampling import GREEDY, Sampling, uniforms_of_lanes
from pretrain.inference.speculation import Drafter, SpeculativeFilling
from pretrain.inference.token_rules import TokenRules, specials_but

_SHORTEST_PLACE_TOKENS = 8
_LONGEST_STEP_TOKENS = 32
HOLE_LENGTH_POWER = 0.7
"""Chosen on held-out holes (benchmarks/results.md, "Lengths of holes"): 1 makes fillings too long, less too short."""


@dataclass(frozen=True)
class HoleRequest:
    """A hole to fill with `num_tokens` tokens, or at most so many if the length is not known.

    `first_sample` is the number of its first sample; samples of different numbers differ.
    """

    sides: Sides
    num_tokens: int
    first_sample: int = 0


@dataclass(frozen=True)
class _Options:
    """Options of left-to-right infilling."""

    sampling: Sampling
    rules: TokenRules
    num_samples: int
    beam: int | None
    length_power: float = HOLE_LENGTH_POWER
    at_once: int = 1

    def rating(self, filling: Generated) -> float:
        """Return the score by which fillings are compared: nats per token if `length_power` is 1."""
        return self.rated(filling.log_likelihood, filling.num_chosen)

    def rated(self, log_likelihood: float, num_chosen: int) -> float:
        """Return the score of so many tokens, the end included."""
        return rated(log_likelihood, num_chosen, self.length_power)

    @property
    def cut_by(self) -> Rating | None:
        """The rating by which a filling of unknown length may be cut; a sample is none any longer if it is cut."""
        return self.rated if self.rules.end is not None and self.sampling.greedy else None


def rated(log_likelihood: float, num_chosen: int, length_power: float = HOLE_LENGTH_POWER) -> float:
    """Return the score by which fillings of different lengths are compared, of so many tokens with the end."""
    return float(log_likelihood / max(1, num_chosen) ** length_power)


def fill_known_length(
    decoder: Decoder,
    holes: Sequence[HoleRequest],
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    beam: int | None = None,
    at_once: int | None = None,
) -> list[list[Generated]]:
    """Return `num_samples` fillings of exactly `num_tokens` tokens for every hole; with `beam` the best of such a beam.

    A hole's fillings do not depend on the others. `at_once` is the most tokens of a pass: it does not
    change what is written (see `SpeculativeFilling`). None is 1: on CPUs drafts cost more than they save.
    """
    options = _Options(sampling, replace(rules, end=None), num_samples, beam, at_once=at_once or 1)
    check_lengths(decoder, holes, options.rules)
    filled = _filled(decoder, holes, [[one.num_tokens] for one in holes], options)
    return [fillings[:num_samples] for (fillings,) in filled]


def fill_unknown_length(
    decoder: Decoder,
    holes: Sequence[HoleRequest],
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    beam: int | None = None,
    length_power: float = HOLE_LENGTH_POWER,
    at_once: int | None = None,
) -> list[list[Generated]]:
    """Return `num_samples` fillings of at most `num_tokens` tokens for every hole, each ended by `rules.end`.

    A text is decoded with places of several lengths side by side (`place_lengths`). Of each sample's fillings the one
    is returned whose tokens, including the end, have the highest log-likelihood / num_tokens ** length_power. A
    filling that reaches the end of its place is ended there, and the end's likelihood counts. Without sampling, the
    beginnings of a filling, each with the end after it, are fillings too (see `Writing`). With `beam`, every place
    gets a beam of that width, and the most likely of equal fillings is kept. A hole's fillings do not depend on the
    others. `at_once` as in `fill_known_length`.
    """
    assert rules.end is not None
    check_lengths(decoder, holes, rules)
    options = _Options(sampling, rules, num_samples, beam, length_power, at_once or 1)
    filled = _filled(decoder, holes, [place_lengths(one.num_tokens) for one in holes], options)
    return [_best(of_places, options) for of_places in filled]


def check_lengths(decoder: Decoder, holes: Sequence[HoleRequest], rules: TokenRules) -> None:
    """Raise UserError for holes that are too short or too long, before memory is allocated."""
    for one in holes:
        if one.num_tokens < 1:
            raise UserError(f"a hole must have at least 1 token, got {one.num_tokens}")
        check_place(decoder, one.num_tokens + (rules.end is not None))


def place_lengths(max_tokens: int) -> Sequence[int]:
    """Return 8, 16, 32, 64, 96 ... and the length that just holds `max_tokens` and the end.

    Steps are at most 32, because pretraining leaves 1 to 32 positions more than the hole has tokens: for every length
    there is a place as in training.
    """
    longest = max_tokens + 1
    places = []
    place = _SHORTEST_PLACE_TOKENS
    while place < longest:
        places.append(place)
        place += min(place, _LONGEST_STEP_TOKENS)
    return [*places, longest]


def _filled(
    decoder: Decoder, wanted: Sequence[HoleRequest], places: Sequence[Sequence[int]], options: _Options
) -> list[list[list[Generated]]]:
    """Return the fillings of every hole and place, its samples or its beam in a row."""
    if not wanted:
        return []
    holes = [Hole(one.sides, row) for one, row in zip(wanted, places, strict=True)]
    text = Holes(decoder, holes, options.beam or options.num_samples)
    first_samples = [one.first_sample for one in wanted]
    rows = iter(_written(text, holes, first_samples, options, decoder.model.device))
    return [[next(rows) for _ in hole.place_tokens] for hole in holes]


def _written(
    text: Holes, holes: Sequence[Hole], first_samples: Sequence[int], options: _Options, device: torch.device
) -> list[list[Generated]]:
    """Return the fillings of every place."""
    must_end = options.rules.end is not None
    limits = [place - must_end for hole in holes for place in hole.place_tokens]
    if options.beam:
        power = options.length_power
        return beam_search(text, limits, options.beam, options.rules, must_end=must_end, length_power=power)
    num_samples = options.num_samples
    limits = [limit for limit in limits for _ in range(num_samples)]
    uniform_BT = _drawn(holes, first_samples, options, device)
    lanes = _generated(text, holes, limits, uniform_BT, options)
    return [lanes[first : first + num_samples] for first in range(0, len(lanes), num_samples)]


def _generated(
    text: Holes, holes: Sequence[Hole], limits: Sequence[int], uniform_BT: Tensor | None, options: _Options
) -> list[Generated]:
    """Return the fillings of all lanes, one token at a time or several."""
    must_end = options.rules.end is not None
    if options.at_once == 1:
        return generate(
            text,
            limits,
            options.sampling,
            options.rules,
            uniform_BT,
            must_end=must_end,
            rating=options.cut_by,
        )
    drafters = []
    for hole in holes:
        known = Drafter(hole.sides.prefix.tolist(), hole.sides.suffix.tolist())
        drafters += [known.copy() for _ in range(len(hole.place_tokens) * options.num_samples)]
    filling = SpeculativeFilling(
        text,
        drafters,
        limits,
        options.sampling,
        options.rules,
        uniform_BT,
        must_end=must_end,
        at_once=options.at_once,
        rating=options.cut_by,
    )
    return filling.fill()


def _drawn(
    holes: Sequence[Hole], first_samples: Sequence[int], options: _Options, device: torch.device
) -> Tensor | None:
    """Return the random numbers [B, T] for sampling, the same for all places of a hole; None for greedy decoding."""
    if options.sampling.greedy:
        return None
    num_steps = max(place for hole in holes for place in hole.place_tokens)
    rows = []
    for hole, first in zip(holes, first_samples, strict=True):
        samples = range(first, first + options.num_samples)
        row = uniforms_of_lanes(options.sampling, [hole.sides.context()], samples, num_steps, device)
        assert row is not None
        rows += [row] * len(hole.place_tokens)
    return torch.cat(rows)


class OpenFilling:
    """A hole of unknown length whose tokens are chosen as `fill_unknown_length` chooses them, pass by pass.

    `text` has a lane for every place and sample, whose tokens `writing` chooses.
    """

    def __init__(
        self,
        decoder: Decoder,
        request: HoleRequest,
        sampling: Sampling,
        rules: TokenRules,
        *,
        num_samples: int = 1,
        watch: OnToken | None = None,
        cache: HistoryCache | None = None,
    ) -> None:
        check_lengths(decoder, [request], rules)
        self._options = _Options(sampling, rules, num_samples, None)
        hole = Hole(request.sides, place_lengths(request.num_tokens))
        self.text = Holes(decoder, [hole], num_samples, cache)
        uniform_BT = _drawn([hole], [request.first_sample], self._options, decoder.model.device)
        self.limits = [place - 1 for place in hole.place_tokens for _ in range(num_samples)]
        """The most tokens of every lane before the end."""
        self.writing = Writing(
            self.limits,
            sampling,
            rules,
            uniform_BT,
            must_end=True,
            watch=watch,
            rating=self._options.cut_by,
        )

    def best(self) -> list[int]:
        """Return the number of the lane with each sample's best filling, among those that ended if there are any."""
        num_samples, lanes = self._options.num_samples, self.writing.generated()
        best = []
        for sample in range(num_samples):
            own = range(sample, len(lanes), num_samples)
            ended = [lane for lane in own if lanes[lane].ended or lanes[lane].stopped]
            best.append(max(ended or own, key=lambda lane: self._options.rating(lanes[lane])))
        return best


def _best(of_places: Sequence[Sequence[Generated]], options: _Options) -> list[Generated]:
    """Return the best filling of every sample, or the best ones of all beams."""
    if options.beam is None:
        return [max(fillings, key=options.rating) for fillings in zip(*of_places, strict=True)]
    ranked = sorted((one for row in of_places for one in row), key=options.rating, reverse=True)
    first: dict[tuple[int, ...], Generated] = {}
    for one in ranked:
        first.setdefault(one.tokens, one)
    return list(first.values())[: options.num_samples]


_MAX_SAMPLES = 1024


@dataclass(frozen=True)
class FillingOptions:
    """Options of infilling: `num_samples` samples or a beam, at most `at_once` tokens of a pass (None: see there).

    Left to right, several holes are filled side by side in at most `max_lanes` lanes.
    """

    sampling: Sampling = GREEDY
    beam: int | None = None
    num_samples: int = 1
    order: FillingOrder = "left_to_right"
    at_once: int | None = None
    max_lanes: int = 32

    def __post_init__(self) -> None:
        if self.num_samples > _MAX_SAMPLES:
            raise UserError(
                f"a hole can be filled {_MAX_SAMPLES} times at once, got {self.num_samples}: use fewer"
            )


def fill_holes(
    decoder: Decoder, holes: Sequence[HoleRequest], options: FillingOptions, end_hole_id: int | None
) -> list[list[Generated]]:
    """Return the fillings of every hole. With `end_hole_id`, lengths are not known, and this token ends a filling."""
    if options.order == "left_to_right":
        fill = fill_known_length if end_hole_id is None else fill_unknown_length
        rules = TokenRules.of_hole(end_hole_id)
        check_lengths(decoder, holes, rules)
        found = []
        for batch in _batches(holes, options, end_hole_id is not None):
            found += fill(
                decoder,
                batch,
                options.sampling,
                rules,
                num_samples=options.num_samples,
                beam=options.beam,
                at_once=options.at_once,
            )
        return found
    if end_hole_id is not None or options.beam is not None:
        raise UserError(
            "filling the most certain tokens first needs a known length and no beam: give the length in tokens"
        )
    return [_any_order(decoder, one, options) for one in holes]


def _batches(
    holes: Sequence[HoleRequest], options: FillingOptions, has_places: bool
) -> Iterator[list[HoleRequest]]:
    """Yield batches of holes that fill the lanes; each has at least one hole."""
    batch: list[HoleRequest] = []
    num_lanes = 0
    for one in holes:
        num_layouts = len(place_lengths(one.num_tokens)) if has_places else 1
        own = num_layouts * (options.beam or options.num_samples)
        if batch and num_lanes + own > options.max_lanes:
            yield batch
            batch, num_lanes = [], 0
        batch.append(one)
        num_lanes += own
    if batch:
        yield batch


def _any_order(decoder: Decoder, hole: HoleRequest, options: FillingOptions) -> list[Generated]:
    fillings = [
        fill_any_order(
            decoder,
            hole.sides,
            hole.num_tokens,
            options.sampling,
            TokenRules(specials_but(None)),
            at_once=options.at_once,
            order=options.order,
            sample=hole.first_sample + sample,
        )
        for sample in range(options.num_samples)
    ]
    return [Generated(one.tokens, one.log_likelihood, ended=False) for one in fillings]
