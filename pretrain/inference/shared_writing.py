"""Requests for new text of which each is a text of its own, and its state from pass to pass.

Shapes: B lanes, V vocabulary.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.inference.completion import Continuation, check_prompts, check_stops
from pretrain.inference.earlier_documents import with_documents_before
from pretrain.inference.generation import Generated, Writing, log_probability
from pretrain.inference.history import HistoryCache
from pretrain.inference.hole import Holes, Sides
from pretrain.inference.infilling import HoleRequest, OpenFilling, place_lengths
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.open_choice import OpenChoice
from pretrain.inference.results import Completion
from pretrain.inference.sampling import GREEDY, Sampling, uniforms_of_lanes
from pretrain.inference.text_stream import TextStart, TextStream
from pretrain.inference.token_rules import TokenRules
from pretrain.model.precision import at_least_float32


@dataclass(frozen=True)
class TextRequest:
    """Text to write after `prefix`, up to `suffix` if there is one, with `num_samples` samples.

    A text ends before a `stop` text, after `max_new_tokens`, where the model ends it, or when `time_limit_s` have
    passed since its first token. `num_alternatives` asks for every token's log-probability and for so many of the most
    likely tokens in its place. `reuses_history`: what was read of other texts that begin alike is not read again.
    Requests of one `group` take turns with those of others when they wait.
    `documents_before`: texts to read before one with a suffix, the nearest last (see `with_documents_before`).
    """

    prefix: bytes
    suffix: bytes | None
    max_new_tokens: int
    sampling: Sampling = GREEDY
    num_samples: int = 1
    stop: Sequence[bytes] = ()
    num_alternatives: int | None = None
    time_limit_s: float | None = None
    reuses_history: bool = True
    documents_before: Sequence[bytes] = ()
    group: str = ""

    @property
    def num_lanes(self) -> int:
        """The number of lanes that it needs."""
        places = 1 if self.suffix is None else len(place_lengths(self.max_new_tokens))
        return self.num_samples * places


@dataclass(frozen=True)
class WrittenToken:
    """A token of a text, its log-probability in nats, and the most likely tokens in its place with theirs."""

    data: bytes
    log_probability: float
    alternatives: tuple[tuple[bytes, float], ...] = ()


OnNewText = Callable[[int, str, Sequence[WrittenToken]], None]
"""Called with (number of the sample, new text, its tokens if they were asked for)."""


@dataclass(frozen=True)
class WrittenText:
    """A text, and its tokens if they were asked for."""

    completion: Completion
    tokens: tuple[WrittenToken, ...]


@dataclass(frozen=True)
class Answer:
    """All samples of a request. Of the prompt's tokens, `num_reused` were not read, because they had been before.

    `sees_all` tells whether the model sees the whole prompt without its memory.
    """

    texts: tuple[WrittenText, ...]
    num_prompt_tokens: int
    num_reused: int
    sees_all: bool
    reading_s: float
    writing_s: float


@dataclass
class _Lane:
    stream: TextStream
    new_text: str = ""
    tokens: list[WrittenToken] = field(default_factory=list)
    num_shown: int = 0

    def add(self, text: str) -> None:
        self.new_text += text

    def tokens_of_text(self) -> tuple[WrittenToken, ...]:
        """The tokens without those that a stop text cut off."""
        kept, num_bytes = 0, 0
        while kept < len(self.tokens) and num_bytes < len(self.stream.data):
            num_bytes += len(self.tokens[kept].data)
            kept += 1
        return tuple(self.tokens[:kept])


class SharedText:
    """A request's text, read, with a lane for each sample and place; its tokens are chosen pass by pass.

    Raises UserError for what the model cannot write.
    """

    def __init__(
        self,
        model: PermutationLM,
        request: TextRequest,
        cache: HistoryCache,
        on_new_text: OnNewText | None = None,
    ) -> None:
        started = time.perf_counter()
        self._request, self._tokenizer, self._on_new_text = request, model.tokenizer, on_new_text
        self._lanes = [self._new_lane(request) for _ in range(request.num_lanes)]
        reused = cache.num_reused
        prompt = model.opened(request.prefix)
        self._filling: OpenFilling | None = None
        self.decoding: Holes | Continuation
        num_tokens = len(prompt)
        if request.suffix is None:
            self.decoding, self.writing = self._continued(model, prompt)
            room = 0
        else:
            sides = Sides(prompt, model.closed(request.suffix))
            sides = with_documents_before(model.decoder, model.tokenizer, sides, request.documents_before)
            num_tokens = len(sides.prefix) + len(sides.suffix)
            self._filling = self._opened(model, sides, cache)
            self.decoding, self.writing = self._filling.text, self._filling.writing
            room = request.max_new_tokens + 1
        self._choice = None if self._filling is None else self._opened_choice(self._filling.limits)
        self._shown = [TextStart() for _ in range(request.num_samples)]
        self.token_B = torch.zeros(0, dtype=torch.int64)
        """The tokens of the last pass, which the next one writes."""
        self._num_prompt_tokens, self._num_reused = num_tokens, cache.num_reused - reused
        self._sees_all = num_tokens + room <= model.segment_tokens
        self._written_from = time.perf_counter()
        self._reading_s = self._written_from - started

    @property
    def is_over(self) -> bool:
        """Whether every lane has ended, or time is up."""
        limit_s = self._request.time_limit_s
        is_late = limit_s is not None and time.perf_counter() - self._written_from >= limit_s
        return is_late or not self.writing.going

    def choose(self, logits_BV: Tensor) -> list[int]:
        """Choose the next tokens; return the places of the lanes that go on, which alone are kept.

        Lanes of a hole whose filling cannot become the answer any more do not go on.
        """
        lanes = self.writing.lanes
        token_B = self.writing.choose(logits_BV)
        if self._request.num_alternatives is not None:
            self._record(lanes, logits_BV, token_B)
        going = self.writing.going
        if self._choice is None:
            self._show(lanes)
        else:
            dropped = self._decide(self._choice, lanes, logits_BV, token_B)
            going = [place for place in going if lanes[place] not in dropped]
        if len(going) < len(lanes):
            token_B = token_B[torch.tensor(going, dtype=torch.int64, device=token_B.device)]
            self.writing.keep(going)
        self.token_B = token_B
        return going

    def answer(self) -> Answer:
        """Return what is written, and call `on_new_text` with what was not shown yet."""
        texts = []
        for sample, (lane, generated) in enumerate(self._best()):
            lane.stream.close()
            texts.append(WrittenText(Completion.of(generated, lane.stream), lane.tokens_of_text()))
            if self._choice is not None:
                lane.new_text = lane.stream.text[len(self._shown[sample].text) :]
            self._show_lane(sample, lane, texts[-1].tokens, is_last=True)
        return Answer(
            tuple(texts),
            self._num_prompt_tokens,
            self._num_reused,
            self._sees_all,
            self._reading_s,
            time.perf_counter() - self._written_from,
        )

    def _best(self) -> list[tuple[_Lane, Generated]]:
        """Return every sample's lane and tokens; those of a hole end where the best filling does."""
        generated = self.writing.generated()
        if self._filling is None or self._choice is None:
            return list(zip(self._lanes, generated, strict=True))
        found = []
        for sample, best in enumerate(self._filling.best()):
            chosen = self._choice.chosen(sample)
            if chosen is None:  # time is up
                found.append((self._lanes[best], generated[best]))
                continue
            one = generated[chosen.lane]
            if chosen.is_cut:
                tokens = tuple(self._choice.tokens(chosen.lane, chosen.num_tokens))
                one = Generated(tokens, chosen.log_likelihood, ended=True)
            lane = self._lanes[chosen.lane]
            found.append((self._cut(lane, one.tokens) if one.ended else lane, one))
        return found

    def _decide(
        self, choice: OpenChoice, lanes: Sequence[int], logits_BV: Tensor, token_B: Tensor
    ) -> set[int]:
        """Pass the newest tokens to the choice, show what is final by now, and return the lanes that are dropped."""
        end, going = self.writing.end, set(self.writing.going)
        assert end is not None
        scores = log_probability(logits_BV, token_B).tolist()
        end_scores = log_probability(logits_BV, torch.full_like(token_B, end)).tolist()
        for place, (lane, token) in enumerate(zip(lanes, token_B.tolist(), strict=True)):
            over = None if place in going else "ended" if token == end else "stopped"
            choice.add(lane, token, scores[place], end_scores[place], over)
        dropped = choice.drop()
        if self._on_new_text is not None and self._request.num_alternatives is None:
            for sample, start in enumerate(self._shown):
                if new := start.grown(choice.common(sample, self._data)):
                    self._on_new_text(sample, new, ())
        return dropped

    def _data(self, lane: int, num_tokens: int | None) -> bytes:
        """Return the text of a lane's first tokens, or as much of the lane's text as cannot change."""
        if num_tokens is None or self._choice is None:
            return self._lanes[lane].stream.final_data
        return self._tokenizer.decode_bytes(self._choice.tokens(lane, num_tokens))

    def _opened_choice(self, limits: Sequence[int]) -> OpenChoice:
        request = self._request
        return OpenChoice(
            limits,
            request.num_samples,
            may_cut=request.sampling.greedy,
            always_ends=request.time_limit_s is None and not any(request.stop),
        )

    def _new_lane(self, request: TextRequest) -> _Lane:
        stream = TextStream(self._tokenizer, request.stop, lambda text: lane.add(text))
        lane = _Lane(stream)
        return lane

    def _cut(self, lane: _Lane, tokens: Sequence[int]) -> _Lane:
        """Return a lane with the first tokens of one that has shown nothing: a filling may end before its tokens do."""
        cut = self._new_lane(self._request)
        for token in tokens:
            cut.stream.add(token)
        cut.tokens = lane.tokens[: len(tokens)]
        return cut

    def _add(self, lane: int, token: int) -> bool:
        return self._lanes[lane].stream.add(token)

    def _continued(self, model: PermutationLM, prompt: NDArray[np.int64]) -> tuple[Continuation, Writing]:
        request = self._request
        check_prompts([request.prefix], request.max_new_tokens, request.stop)
        text = Continuation(model.decoder, [prompt], request.max_new_tokens, request.num_samples)
        samples = range(request.num_samples)
        device = model.decoder.model.device
        uniform_BT = uniforms_of_lanes(request.sampling, [prompt], samples, request.max_new_tokens, device)
        limits = [request.max_new_tokens] * request.num_samples
        return text, Writing(limits, request.sampling, model.document_rules, uniform_BT, watch=self._add)

    def _opened(self, model: PermutationLM, sides: Sides, cache: HistoryCache) -> OpenFilling:
        request = self._request
        model.check_can_fill(all_known=False)
        check_stops(request.stop)
        return OpenFilling(
            model.decoder,
            HoleRequest(sides, request.max_new_tokens),
            request.sampling,
            TokenRules.of_hole(model.tokenizer.special_id("<end_hole>")),
            num_samples=request.num_samples,
            watch=self._add,
            cache=cache if request.reuses_history else None,
        )

    def _record(self, lanes: Sequence[int], logits_BV: Tensor, token_B: Tensor) -> None:
        score_BV = at_least_float32(logits_BV).log_softmax(dim=-1)
        top = score_BV.topk(min(self._request.num_alternatives or 0, score_BV.shape[-1]), dim=-1)
        end = self.writing.end
        for number, token, score_V, top_k, token_k in zip(
            lanes, token_B.tolist(), score_BV, top.values.tolist(), top.indices.tolist(), strict=True
        ):
            if token == end:
                continue
            likely = tuple((self._bytes(one), score) for one, score in zip(token_k, top_k, strict=True))
            self._lanes[number].tokens.append(WrittenToken(self._bytes(token), float(score_V[token]), likely))

    def _bytes(self, token: int) -> bytes:
        return self._tokenizer.decode_bytes([token])

    def _show(self, lanes: Sequence[int]) -> None:
        for number in lanes:
            self._show_lane(number, self._lanes[number], self._lanes[number].tokens)

    def _show_lane(
        self, sample: int, lane: _Lane, tokens: Sequence[WrittenToken], is_last: bool = False
    ) -> None:
        """Call `on_new_text` if a lane has new text; the last time all of its tokens belong to it."""
        if self._on_new_text is None:
            return
        if lane.new_text or (is_last and len(tokens) > lane.num_shown):
            self._on_new_text(sample, lane.new_text, tokens[lane.num_shown :])
            lane.new_text, lane.num_shown = "", len(tokens)
