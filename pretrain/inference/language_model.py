"""The model for its users: text in, text out.

    model = PermutationLM.from_run(Path("runs/demo"))
    print(model.complete("def main(", max_new_tokens=64)[0].text)

A text is read as a document after an `<eod>`, as in training. New text is appended to the prompt's bytes exactly. If
a prompt ends in the middle of a token, the model continues from tokens that are rare in training, so a prompt should
end after a whole word or line.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.any_order import FillingOrder, check_order
from pretrain.inference.completion import check_prompts, complete_by_beam, complete_tokens
from pretrain.inference.decoder import Decoder
from pretrain.inference.embedding import embed_texts
from pretrain.inference.folders import ModelFiles, OnDamaged, find_model_folder
from pretrain.inference.generation import Generated
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import FillingOptions, HoleRequest, fill_holes
from pretrain.inference.joint_filling import HoleSize, fill_jointly
from pretrain.inference.line_rewriting import rewrite_lines
from pretrain.inference.results import Completion, FilledHoles
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.scanned_text import ScannedLine, ScannedText, scan_texts
from pretrain.inference.scored_text import ScoredText, score_parts, score_texts
from pretrain.inference.text_ranges import ByteRange
from pretrain.inference.text_stream import TextStream
from pretrain.inference.token_rules import TokenRules, specials_but
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from pretrain.weights import ModelDescription

_MAX_SAMPLES = 1 << 20
_MAX_SIDE_BY_SIDE = 1024

OnText = Callable[[int, str], None]
"""Called with (number of the completion, new text) as soon as text is final."""


class PermutationLM:
    """A network and its tokenizer."""

    def __init__(
        self,
        network: TwoStreamTransformer,
        tokenizer: CodeTokenizer,
        segment_tokens: int | None = None,
        objective: ObjectiveConfig | None = None,
    ) -> None:
        if network.vocab_size != tokenizer.vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} tokens and the model {network.vocab_size}: "
                "use the tokenizer the model was trained with"
            )
        self.network, self.tokenizer = network.eval(), tokenizer
        self.segment_tokens = ModelDescription.of(network, segment_tokens).segment_tokens
        self.objective = objective
        """The mixture of orders that the model was pretrained on; None if it is not known."""

    @classmethod
    def from_run(
        cls, folder: Path | str, device: str | None = None, on_damaged: OnDamaged | None = None
    ) -> "PermutationLM":
        """Load the model in the folder of a run, a stage, a checkpoint or a model, onto the GPU if there is one.

        For a run in training it is the newest valid checkpoint; `on_damaged` is called for those that are skipped.
        Raises UserError when there is none or a file is damaged or belongs to another model.
        """
        return cls.from_files(find_model_folder(Path(folder), on_damaged or (lambda text: None)), device)

    @classmethod
    def from_files(cls, files: ModelFiles, device: str | None = None) -> "PermutationLM":
        """Load the model of files that were found, as `from_run` does."""
        description = files.checked_description()
        tokenizer = CodeTokenizer.load(files.tokenizer)
        network = files.build(description)
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return cls(network, tokenizer, description.segment_tokens, files.objective())

    @cached_property
    def decoder(self) -> Decoder:
        """The network prepared for decoding; it must not be trained afterwards."""
        return Decoder(self.network, self.segment_tokens)

    def complete(
        self,
        prompts: str | bytes | Sequence[str | bytes],
        *,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        beam: int | None = None,
        num_samples: int = 1,
        first_sample: int = 0,
        stop: str | bytes | Sequence[str | bytes] = (),
        on_text: OnText | None = None,
        max_lanes: int = 16,
    ) -> list[Completion]:
        """Continue every prompt, left to right, up to the end of the text, a stop string or `max_new_tokens`.

        Returns `num_samples` completions per prompt from number `first_sample` on, those of a prompt in a row; sample k
        does not depend on how many others there are. With `beam` it returns the best of a beam of that width, each cut
        at its first stop string, and equal texts once; `sampling` and `on_text` are then not used. At most `max_lanes`
        completions are decoded side by side, or one beam if it is wider. A stop string is not part of the text. Raises
        UserError for an empty prompt or stop string, and for a prompt that is too long for absolute positions.
        """
        texts, stops = _as_list(prompts), _as_list(stop)
        check_prompts(texts, max_new_tokens, stops)
        check_counts(num_samples, beam)
        rows = [self.opened(text) for text in texts]
        completions: list[Completion] = []
        rows_each = max(1, max_lanes // (beam or num_samples))
        samples_each = min(num_samples, max(1, max_lanes))
        for first in range(0, len(rows), rows_each):
            batch = rows[first : first + rows_each]
            if beam:
                found = complete_by_beam(self.decoder, batch, max_new_tokens, beam, self.document_rules)
                for row in found:
                    completions += _distinct(self._completion(one, stops) for one in row)[:num_samples]
                continue
            end_sample = first_sample + num_samples
            for sample in range(first_sample, end_sample, samples_each):
                samples = range(sample, min(sample + samples_each, end_sample))
                on_new_text = _numbered(on_text, len(completions))
                completions += self._streamed(batch, max_new_tokens, sampling, samples, stops, on_new_text)
        return completions

    def infill(
        self,
        prefix: str | bytes,
        suffix: str | bytes,
        *,
        length: int | None = None,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        beam: int | None = None,
        num_samples: int = 1,
        order: FillingOrder = "left_to_right",
        at_once: int | None = None,
    ) -> list[Completion]:
        """Fill the hole between prefix and suffix of a whole text: `num_samples` samples, or the best of a `beam`.

        The hole has `length` tokens, or, without it, up to `max_new_tokens` as the model chooses. The order
        "most_certain" is for known lengths. `at_once` is the most tokens of a pass: None is 1 from left to right and 2
        by certainty, which were the fastest. Raises UserError for a hole that does not fit the model's segments.
        """
        options = FillingOptions(sampling, beam, num_samples, order, at_once)
        return self._fill([Sides(self.opened(prefix), self.closed(suffix))], length, max_new_tokens, options)[
            0
        ]

    def infill_texts(
        self,
        texts: Sequence[tuple[str | bytes, str | bytes]],
        *,
        length: int | Sequence[int] | None = None,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        beam: int | None = None,
        num_samples: int = 1,
        order: FillingOrder = "left_to_right",
        at_once: int | None = None,
        max_lanes: int = 32,
    ) -> list[list[Completion]]:
        """Fill the holes of several (prefix, suffix) as `infill` does; `length` may be a list with one for each.

        Left to right, holes of several texts are filled side by side in at most `max_lanes` lanes; a
        hole of unknown length takes a lane for each length of place, times `num_samples` or the beam's width. In other
        orders the texts are filled one after the other.
        """
        options = FillingOptions(sampling, beam, num_samples, order, at_once, max_lanes)
        sides = [Sides(self.opened(prefix), self.closed(suffix)) for prefix, suffix in texts]
        return self._fill(sides, length, max_new_tokens, options)

    def infill_holes(
        self,
        parts: Sequence[str | bytes],
        *,
        length: int | Sequence[int | None] | None = None,
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        order: FillingOrder | Sequence[int] = "most_certain",
        at_once: int | None = None,
        sample: int = 0,
    ) -> FilledHoles:
        """Fill all holes between the parts of one text together: see `joint_filling.fill_jointly`.

        `length` is that of every hole in tokens, or a list with one for each, None where the model chooses it, up to
        `max_new_tokens` (None: 64, all holes together at most half a segment). The order is by certainty, from the
        first hole to the last ("left_to_right"), or a list of the holes' numbers. Samples of different numbers differ.
        Raises UserError for holes that do not fit a segment together.
        """
        if isinstance(parts, str | bytes):
            raise UserError("parts must be several texts, got one: give the texts around the holes as a list")
        if len(parts) < 2:
            raise UserError("the text has no hole: mark the place to fill")
        num_holes = len(parts) - 1
        lengths = [length] * num_holes if length is None or isinstance(length, int) else list(length)
        if len(lengths) != num_holes:
            raise UserError(f"there are {num_holes} holes and {len(lengths)} lengths: give one for each")
        most = min(64, max(1, self.segment_tokens // 2 // num_holes))
        most = most if max_new_tokens is None else max_new_tokens
        self.check_can_fill(all_known=None not in lengths)
        if isinstance(order, str):
            check_order(order)
            numbers = None if order == "most_certain" else list(range(num_holes))
        else:
            numbers = list(order)
        filling = fill_jointly(
            self.decoder,
            [
                self.opened(parts[0]),
                *(self._encoded(part) for part in parts[1:-1]),
                self.closed(parts[-1]),
            ],
            [HoleSize(most if one is None else one, one is not None) for one in lengths],
            sampling,
            order=numbers,
            at_once=at_once,
            end_hole_id=self.tokenizer.special_id("<end_hole>"),
            sample=sample,
        )
        holes = tuple(self._completion(one) for one in filling.fillings)
        return FilledHoles(holes, filling.order, filling.log_likelihood, filling.num_passes)

    def score(self, texts: str | bytes | Sequence[str | bytes], *, num_likely: int = 0) -> list[ScoredText]:
        """Score every token of every text given those before it (see `scored_text.score_texts`).

        With `num_likely` the scores have that many of the most likely tokens in every place.
        """
        data = [_as_bytes(text) for text in _as_list(texts)]
        return score_texts(self.network, self.tokenizer, data, self.segment_tokens, num_likely)

    def score_part(self, text: str | bytes, part: ByteRange) -> ScoredText:
        """Score a part of a text given the rest (see `scored_text.score_parts`)."""
        return self.score_parts(text, [part])

    def score_parts(self, text: str | bytes, parts: Sequence[ByteRange]) -> ScoredText:
        """Score several parts together given the rest (see `scored_text.score_parts`)."""
        return score_parts(self.network, self.tokenizer, _as_bytes(text), parts, self.segment_tokens)

    def scan(
        self,
        texts: str | bytes | Sequence[str | bytes],
        *,
        fast: bool = False,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[ScannedText]:
        """Score every line of every text given the rest of it (see `scanned_text.scan_texts`).

        Raises UserError for an empty text, and for a model that was trained from left to right only.
        """
        self.check_can_fill(all_known=True)
        data = [_as_bytes(text) for text in _as_list(texts)]
        return scan_texts(
            self.network, self.tokenizer, data, self.segment_tokens, fast=fast, after_batch=after_batch
        )

    def rewrite_lines(self, text: str | bytes, lines: Sequence[ScannedLine]) -> list[Completion | None]:
        """Write what the model finds most likely in place of each line (see `line_rewriting.rewrite_lines`)."""
        self.check_can_fill(all_known=True)
        return rewrite_lines(self.decoder, self.tokenizer, _as_bytes(text), lines)

    def embed(self, texts: str | bytes | Sequence[str | bytes]) -> NDArray[np.float32]:
        """Return a vector of length one per text [number of texts, E] (see `embedding.embed_texts`)."""
        rows = [self._encoded(text) for text in _as_list(texts)]
        return embed_texts(self.network, rows, self.segment_tokens)

    def _fill(
        self,
        sides: Sequence[Sides],
        length: int | Sequence[int] | None,
        max_new_tokens: int,
        options: FillingOptions,
    ) -> list[list[Completion]]:
        found = self._filled(sides, length, max_new_tokens, options)
        return [[self._completion(one) for one in fillings] for fillings in found]

    def _filled(
        self,
        sides: Sequence[Sides],
        length: int | Sequence[int] | None,
        max_new_tokens: int,
        options: FillingOptions,
    ) -> list[list[Generated]]:
        self.check_can_fill(all_known=length is not None)
        check_counts(options.num_samples, options.beam)
        wanted = max_new_tokens if length is None else length
        num_tokens = [wanted] * len(sides) if isinstance(wanted, int) else list(wanted)
        if len(num_tokens) != len(sides):
            raise UserError(f"there are {len(sides)} texts and {len(num_tokens)} lengths: give one for each")
        holes = [HoleRequest(*both) for both in zip(sides, num_tokens, strict=True)]
        end_hole_id = self.tokenizer.special_id("<end_hole>") if length is None else None
        return fill_holes(self.decoder, holes, options, end_hole_id)

    def _streamed(
        self,
        batch: Sequence[NDArray[np.int64]],
        max_new_tokens: int,
        sampling: Sampling,
        samples: range,
        stop: Sequence[str | bytes],
        on_new_text: OnText,
    ) -> list[Completion]:
        streams = [
            TextStream(self.tokenizer, stop, partial(on_new_text, lane))
            for lane in range(len(batch) * len(samples))
        ]
        generated = complete_tokens(
            self.decoder,
            batch,
            max_new_tokens,
            sampling,
            self.document_rules,
            num_samples=len(samples),
            first_sample=samples.start,
            watch=lambda lane, token: streams[lane].add(token),
        )
        for stream in streams:
            stream.close()
        return [Completion.of(one, stream) for one, stream in zip(generated, streams, strict=True)]

    def _completion(self, generated: Generated, stop: Sequence[str | bytes] = ()) -> Completion:
        stream = TextStream(self.tokenizer, stop)
        stopped = any(stream.add(token) for token in generated.tokens)
        stream.close()
        return Completion.of(replace(generated, stopped=stopped), stream)

    def check_can_fill(self, *, all_known: bool) -> None:
        """Raise UserError if the model never saw holes in training, or none of unknown length where there is one."""
        objective = self.objective
        if objective is not None and not objective.sees_both_sides:
            raise UserError(
                "this model was trained from left to right only (all weights of pretrain.objective but left_to_right "
                "are 0), so it cannot use the text after a hole: use a model that was trained on another order too"
            )
        if objective is not None and not all_known and not objective.hides_lengths(self.segment_tokens):
            raise UserError(
                "this model was not trained to end a hole (no order of pretrain.objective has holes, or "
                "known_length_share is 1): "
                "give the hole's length in tokens"
            )

    @property
    def document_rules(self) -> TokenRules:
        """The rules for text that ends with its document."""
        return TokenRules(specials_but("<eod>"), self.tokenizer.eod_id)

    def _encoded(self, text: str | bytes) -> NDArray[np.int64]:
        return self.tokenizer.encode_bytes(_as_bytes(text)).astype(np.int64)

    def opened(self, text: str | bytes) -> NDArray[np.int64]:
        """Return the tokens of a text at the beginning of its document."""
        return np.insert(self._encoded(text), 0, self.tokenizer.eod_id)

    def closed(self, text: str | bytes) -> NDArray[np.int64]:
        """Return the tokens of a text at the end of its document."""
        return np.append(self._encoded(text), self.tokenizer.eod_id)


def check_counts(num_samples: int, beam: int | None) -> None:
    """Raise UserError for invalid numbers of samples or beams."""
    if num_samples < 1:
        raise UserError(f"the number of samples must be at least 1, got {num_samples}")
    if num_samples > _MAX_SAMPLES:
        raise UserError(f"the number of samples must be at most {_MAX_SAMPLES}, got {num_samples}")
    if beam is not None and beam > _MAX_SIDE_BY_SIDE:
        raise UserError(f"a beam must be at most {_MAX_SIDE_BY_SIDE} texts wide, got {beam}")
    if beam is not None and beam < num_samples:
        raise UserError(f"a beam of {beam} cannot give {num_samples} results: make it wider or ask for fewer")


def _as_list(texts: str | bytes | Sequence[str | bytes]) -> list[str | bytes]:
    return [texts] if isinstance(texts, str | bytes) else list(texts)


def _distinct(completions: Iterable[Completion]) -> list[Completion]:
    """Return the first of all completions with the same text."""
    first: dict[bytes, Completion] = {}
    for one in completions:
        first.setdefault(one.data, one)
    return list(first.values())


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _numbered(on_text: OnText | None, first: int) -> OnText:
    return lambda lane, text: on_text(first + lane, text) if on_text else None
