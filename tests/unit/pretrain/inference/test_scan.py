"""Scans against a slow loop: one whole pass of the model per token, which is shown nothing that is hidden."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.documents import SPECIAL_TOKENS
from data_prep.finished.prepared import PreparedCorpus
from pretrain.inference.false_alarms import HeldOutSurprises, held_out_texts
from pretrain.inference.hidden_lines import TextLines, score_hidden_lines
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.scanned_text import FAST_LINES_APART, scan_texts
from pretrain.inference.scoring import score_chosen
from pretrain.model.layout import TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from tests.slow_logits import logits_at
from tests.small_models import VOCAB, small_model

FP64_TOLERANCE = 1e-10
EOD, SEGMENT = 1, 12

NUM_SPECIALS = len(SPECIAL_TOKENS)
Tokens = NDArray[np.int64]


@st.composite
def texts_with_lines(draw: st.DrawFn, most_lines: int = 8) -> TextLines:
    """Random tokens in lines of 1 to 9 tokens; some lines are not to be scored."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=most_lines))
    tokens = np.random.default_rng(sum(lengths)).integers(EOD + 1, VOCAB, sum(lengths))
    ends = np.cumsum(lengths).tolist()
    lines = [range(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    return TextLines(tokens, [line for line in lines if draw(st.integers(0, 4))])


def one_by_one(
    model: TwoStreamTransformer, window: list[int], memory: SegmentMemory, line: range, hidden: range
) -> list[float]:
    """Log-probabilities of a window's tokens `line`, from left to right; `hidden` are shown to nobody before."""
    shown = [(place, 0, token) for place, token in enumerate(window) if place not in hidden]
    found = []
    for rank, place in enumerate(line, start=1):
        logits = logits_at(model, shown, place, memory)
        found.append(float(logits.log_softmax(-1)[window[place]]))
        shown.append((place, rank, window[place]))
    return found


@torch.no_grad()
def reference(model: TwoStreamTransformer, text: TextLines) -> Tokens:
    """`score_hidden_lines` of one text, one line per pass, in windows that begin every half segment."""
    row = [EOD, *text.tokens_T.tolist()]
    half = SEGMENT // 2
    last = max(0, math.ceil((len(row) - SEGMENT) / half))
    memories = [model.empty_memory(1)]
    for window in range(last):
        part = torch.tensor([row[window * half : (window + 1) * half]])
        content = TokenLayout.bidirectional(torch.zeros_like(part))
        memories.append(model(part, content, content, memories[-1]).memory)
    found = np.full(len(row), np.nan)
    for line in text.lines:
        most = half if last else SEGMENT
        for first in range(line.start + 1, line.stop + 1, most):
            end = min(first + most, line.stop + 1)
            distances = [abs((first + end) / 2 - (start * half + SEGMENT / 2)) for start in range(last + 1)]
            # Of windows as near as each other Python's rounding takes the even one.
            window = min(range(last + 1), key=lambda one: (distances[one], one % 2))  # noqa: B023
            start = window * half
            found[first:end] = one_by_one(
                model,
                row[start : start + SEGMENT],
                memories[window],
                range(first - start, end - start),
                range(first - start, line.stop + 1 - start),
            )
    return found[1:]


@settings(deadline=None, max_examples=30)
@given(texts_with_lines(), st.sampled_from([0, 5, 20]))
def test_a_line_has_the_probability_that_one_pass_per_token_gives_it(
    text: TextLines, memory_tokens: int
) -> None:
    model = small_model(memory_tokens=memory_tokens)
    (found,) = score_hidden_lines(model, [text], EOD, SEGMENT)
    np.testing.assert_allclose(found, reference(model, text), atol=FP64_TOLERANCE)


@settings(deadline=None, max_examples=30)
@given(texts_with_lines(most_lines=5), st.integers(1, 4))
def test_lines_of_one_pass_are_predicted_from_the_rest_and_those_before(text: TextLines, apart: int) -> None:
    model, segment = small_model(), 64
    (found,) = score_hidden_lines(model, [text], EOD, segment, apart)
    for first in range(min(apart, len(text.lines))):
        order = np.concatenate([list(line) for line in text.lines[first::apart]])
        expected = score_chosen(model, text.tokens_T, order, EOD, segment)
        np.testing.assert_allclose(found[order], expected.log_probability_P, atol=FP64_TOLERANCE)


@settings(deadline=None, max_examples=20)
@given(st.lists(texts_with_lines(), min_size=1, max_size=4), st.sampled_from([None, 2, 100]))
def test_texts_do_not_depend_on_each_other_and_distant_enough_lines_are_alone(
    texts: list[TextLines], apart: int | None
) -> None:
    model = small_model()
    together = score_hidden_lines(model, texts, EOD, SEGMENT, apart)
    alone_apart = None if apart == 100 else apart
    for text, found in zip(texts, together, strict=True):
        (alone,) = score_hidden_lines(model, [text], EOD, SEGMENT, alone_apart)
        np.testing.assert_allclose(found, alone, atol=FP64_TOLERANCE)


def test_the_rest_of_the_text_never_sees_the_hidden_line() -> None:
    model = small_model()
    tokens = np.random.default_rng(0).integers(EOD + 1, VOCAB, 40)
    lines = [range(first, first + 5) for first in range(0, 40, 5)]
    (before,) = score_hidden_lines(model, [TextLines(tokens, lines)], EOD, SEGMENT)
    for line in lines:
        changed = tokens.copy()
        changed[line[2]] = EOD + 1 + (changed[line[2]] - EOD) % (VOCAB - EOD - 1)
        (after,) = score_hidden_lines(model, [TextLines(changed, lines)], EOD, SEGMENT)
        assert after[line[:2]].tolist() == before[line[:2]].tolist()
        assert (after[line[2:]] != before[line[2:]]).all()
        following = list(range(line.stop, min(len(tokens), line.stop + 5)))
        assert (after[following] != before[following]).all()


def test_the_probabilities_of_all_values_of_a_line_sum_to_one() -> None:
    model = small_model()
    tokens = np.random.default_rng(0).integers(EOD + 1, VOCAB, 20)
    texts = []
    for value in range(VOCAB):
        changed = tokens.copy()
        changed[10] = value
        texts.append(TextLines(changed, [range(10, 11)]))
    found = score_hidden_lines(model, texts, EOD, SEGMENT)
    assert sum(math.exp(one[10]) for one in found) == pytest.approx(1.0, abs=1e-9)


TEXT = b"def first(one):\r\n    return one\n\n   \n\nclass Second:\n    third = 3  # \xc3\xa4 \xff"


def test_every_line_that_is_not_blank_is_scanned(lm: PermutationLM) -> None:
    (scan,) = lm.scan(TEXT)
    lines = TEXT.splitlines(keepends=True)
    assert [line.number for line in scan.lines] == [1, 2, 6, 7]
    tokens = lm.tokenizer.encode_bytes(TEXT)
    scanned = [index for line in scan.lines for index in line.tokens]
    assert scan.num_tokens == len(tokens)
    assert scanned == sorted(set(scanned))
    assert lm.tokenizer.decode_bytes(np.delete(tokens, scanned)).strip() == b""
    for line in scan.lines:
        spelled = TEXT[line.bytes.start : line.bytes.end]
        assert spelled.rstrip() == lines[line.number - 1].rstrip(), (
            "no token reaches into another line's text"
        )
    (whole,) = lm.score(TEXT)
    for line in scan.lines:
        before_P = whole.scores.log_probability_P[line.tokens.start : line.tokens.stop]
        assert line.given_before_P.tolist() == before_P.tolist()
    assert scan.sees_all == (scan.num_tokens < lm.segment_tokens)


def test_a_scan_gives_what_scoring_the_line_gives(lm: PermutationLM) -> None:
    (scan,) = lm.scan(TEXT)
    assert scan.sees_all
    for line in scan.lines:
        scored = lm.score_part(TEXT, line.bytes)
        assert line.log_probability == pytest.approx(scored.scores.log_likelihood, rel=1e-5)
        assert len(line.tokens) == len(scored.token_P)
    assert [line.surprise_bits for line in scan.ranked()] == sorted(
        (line.surprise_bits for line in scan.lines), reverse=True
    )


def test_what_is_written_instead_is_the_likeliest_line_token_by_token_given_the_rest(
    lm: PermutationLM,
) -> None:
    (scan,) = lm.scan(TEXT)
    row = [lm.tokenizer.eod_id, *lm.tokenizer.encode_bytes(TEXT).tolist()]
    never = [token for token in range(lm.tokenizer.vocab_size) if b"\n" in lm.tokenizer.decode_bytes([token])]
    for line, written in zip(scan.lines, lm.rewrite_lines(TEXT, scan.lines), strict=True):
        end = line.tokens.stop + 1
        kept = [row[end - 1]] if row[end - 1] in never else []
        places = range(line.tokens.start + 1, end - len(kept))
        shown = [(place, 0, token) for place, token in enumerate(row) if place not in places]
        log_likelihood, tokens = 0.0, []
        for rank, place in enumerate(places, start=1):
            logits = logits_at(lm.network, shown, place, lm.network.empty_memory(1))
            allowed = logits.index_fill(0, torch.tensor([*range(NUM_SPECIALS), *never]), -math.inf)
            tokens.append(int(allowed.argmax()))
            log_likelihood += float(logits.log_softmax(-1)[tokens[-1]])
            shown.append((place, rank, tokens[-1]))
        assert written is not None
        assert written.data == lm.tokenizer.decode_bytes([*tokens, *kept])
        assert written.data.count(b"\n") <= TEXT[line.bytes.start : line.bytes.end].count(b"\n")
        assert written.num_tokens == len(line.tokens)
        assert written.log_likelihood == pytest.approx(log_likelihood, rel=1e-4)


def test_a_line_of_more_than_half_a_segment_is_scanned_and_not_rewritten(lm: PermutationLM) -> None:
    text = b"x = [" + b"1, " * lm.segment_tokens + b"]\ny = 2\n"
    (scan,) = lm.scan(text)
    assert np.isfinite(scan.lines[0].log_probability)
    written = lm.rewrite_lines(text, scan.lines)
    assert written[0] is None
    assert written[1] is not None


def test_the_fast_form_is_the_given_distance(lm: PermutationLM) -> None:
    text = b"".join(b"name%d = %d\n" % (number, number) for number in range(9))
    (fast,) = lm.scan(text, fast=True)
    (exact,) = lm.scan(text)
    assert [line.tokens for line in fast.lines] == [line.tokens for line in exact.lines]
    tokens = lm.tokenizer.encode_bytes(text)
    hidden = TextLines(tokens, [line.tokens for line in exact.lines])
    (expected,) = score_hidden_lines(
        lm.network, [hidden], lm.tokenizer.eod_id, lm.segment_tokens, FAST_LINES_APART
    )
    for line in fast.lines:
        assert line.given_rest_P.tolist() == expected[list(line.tokens)].tolist()


@given(
    st.lists(st.floats(0, 50), min_size=2, max_size=60, unique=True),
    st.floats(0.001, 0.999),
)
def test_no_more_lines_than_the_rate_are_reported_by_the_threshold_of_the_others(
    surprises: list[float], rate: float
) -> None:
    num_reported = 0
    for number, surprise in enumerate(surprises):
        others = HeldOutSurprises.of([*surprises[:number], *surprises[number + 1 :]])
        if rate < 1 / len(surprises):
            with pytest.raises(UserError, match="too few for a false-alarm rate"):
                others.threshold(rate)
            return
        is_reported = surprise > others.threshold(rate)
        assert is_reported == (others.false_alarm_rate(surprise) <= rate * (1 + 1e-9))
        num_reported += is_reported
    assert num_reported == math.floor(rate * len(surprises) * (1 + 1e-12))


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(UserError, match="above 0 and below 1"):
        HeldOutSurprises.of([1.0, 2.0]).threshold(rate)


def test_held_out_texts_are_of_the_validation_split_in_whole_lines(text_corpus: PreparedCorpus) -> None:
    texts = held_out_texts(text_corpus, 1600)
    assert texts == held_out_texts(text_corpus, 1600)
    block = text_corpus.read_block(text_corpus.blocks("validation")[0])
    documents = [
        text_corpus.tokenizer.decode_bytes(block.document_tokens(number)[:-1])
        for number in range(len(block.docs))
    ]
    for text in texts:
        assert any(document.startswith(text) for document in documents)
        assert text.endswith(b"\n")
        assert 0 < len(text_corpus.tokenizer.encode_bytes(text)) <= 1600 // 16 + 1


def test_a_model_that_was_trained_from_left_to_right_only_is_refused(lm: PermutationLM) -> None:
    one_sided = PermutationLM(
        lm.network, lm.tokenizer, lm.segment_tokens, ObjectiveConfig(spans=0.0, infill=0.0)
    )
    for call in (lambda: one_sided.scan(TEXT), lambda: one_sided.infill("a", "b", length=1)):
        with pytest.raises(UserError, match="trained from left to right only"):
            call()
    assert one_sided.score(TEXT)


def test_an_empty_text_is_refused(lm: PermutationLM) -> None:
    with pytest.raises(UserError, match="the text is empty"):
        scan_texts(lm.network, lm.tokenizer, [TEXT, b""], lm.segment_tokens)
