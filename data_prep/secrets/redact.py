"""Replacement of secrets and personal data in a text by typed placeholders."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import ahocorasick_rs

from data_prep.secrets.assignments import ANCHORS, assigned_at
from data_prep.secrets.config import KINDS, Kind, placeholder
from data_prep.secrets.emails_and_ips import basic_at, bearer_at, email_at, ipv4_at, ipv6_at, url_password_at
from data_prep.secrets.entropy import high_entropy_spans
from data_prep.secrets.private_keys import private_key_spans, putty_at
from data_prep.secrets.text import Span, Syntax, Text, syntax_of
from data_prep.secrets.tokens import TOKEN_FORMS, jwt_at, shaped_token_spans, token_finder

# Called with the text and the start and end of the anchor.
Finder = Callable[[Text, int, int], Span | None]

# Replacements of one pass may make new secrets visible; after so many passes the rest stays.
_MAX_PASSES = 8
_PRIVATE_KEY_ANCHOR = b"private key"
_HEX_DIGITS = b"0abcdef"


@dataclass(frozen=True, slots=True)
class Redacted:
    """The text without its secrets, and the number of secrets of each kind, sorted by kind."""

    data: bytes
    counts: tuple[tuple[Kind, int], ...] = ()


def redact(data: bytes, path: str = "", kinds: Collection[Kind] = KINDS) -> Redacted:
    """Return `data` (UTF-8) with a placeholder for every secret of `kinds`; nothing else is changed.

    The path determines the syntax that the placeholders must not break. The result depends on bytes, path and kinds
    only, and redacting it again changes nothing.
    """
    syntax = syntax_of(path)
    counts: Counter[Kind] = Counter()
    for _ in range(_MAX_PASSES):
        spans = _find(Text(data, syntax), kinds)
        if not spans:
            break
        counts.update(span.kind for span in spans)
        data = _replace(data, spans, syntax)
    return Redacted(data, tuple(sorted(counts.items())))


def _build_finders() -> dict[bytes, tuple[Finder, ...]]:
    finders: dict[bytes, tuple[Finder, ...]] = {}

    def add(anchors: Iterable[bytes], finder: Finder) -> None:
        for anchor in anchors:
            finders[anchor] = (*finders.get(anchor, ()), finder)

    for form in TOKEN_FORMS:
        add(form.anchors, token_finder(form))
    add([b"eyj"], jwt_at)
    add([b"://"], url_password_at)
    add([b"basic"], basic_at)
    add([b"bearer"], bearer_at)
    add([b"putty-user-key-file-0"], putty_at)
    add([b"@"], email_at)
    # The digits around an address's second number.
    add([b"0.0.0", b"0.00.0", b"0.000.0"], ipv4_at)
    # An address's first group: four hexadecimal digits of which the first is a decimal one.
    add((bytes((48, a, b, c, 58)) for a in _HEX_DIGITS for b in _HEX_DIGITS for c in _HEX_DIGITS), ipv6_at)
    add(ANCHORS, assigned_at)
    finders[_PRIVATE_KEY_ANCHOR] = ()
    return finders


_FINDERS = _build_finders()
_FINDERS_BY_ID = tuple(_FINDERS.values())
_PRIVATE_KEY_ID = tuple(_FINDERS).index(_PRIVATE_KEY_ANCHOR)
# A DFA searches half a gigabyte per second for any number of anchors.
_AUTOMATON = ahocorasick_rs.BytesAhoCorasick(
    list(_FINDERS),
    matchkind=ahocorasick_rs.MatchKind.Standard,
    implementation=ahocorasick_rs.Implementation.DFA,
)


def _find(text: Text, kinds: Collection[Kind]) -> list[Span]:
    """Return the spans to replace, in order and without overlap; where finders disagree, the more specific wins."""
    spans: list[Span] = []
    private_keys: list[int] = []
    # Anchors inside a found span are skipped, so that malicious input costs no more than other input.
    found_to = 0
    for anchor, start, end in _AUTOMATON.find_matches_as_indexes(text.folded, overlapping=True):
        if anchor == _PRIVATE_KEY_ID:
            private_keys.append(start)
        if start < found_to:
            continue
        for finder in _FINDERS_BY_ID[anchor]:
            span = finder(text, start, end)
            if span is not None and span.kind in kinds:
                spans.append(span)
                found_to = max(found_to, span.end)
    if private_keys:
        spans.extend(private_key_spans(text, private_keys))
    spans.extend(shaped_token_spans(text))
    spans.extend(high_entropy_spans(text))
    return _merge_overlapping([span for span in spans if span.kind in kinds]) if spans else spans


# The priority of overlapping spans: forms before names, names before shapes.
_STRONGEST_FIRST: tuple[Kind, ...] = (
    "private_key",
    "service_token",
    "url_password",
    "password",
    "high_entropy",
    "email",
    "ip_address",
)


def _merge_overlapping(spans: list[Span]) -> list[Span]:
    """Merge overlapping spans into one that covers them all, with the strongest of their kinds; sorts `spans`."""
    spans.sort()
    merged = [spans[0]] if spans else []
    for span in spans[1:]:
        last = merged[-1]
        if span.start < last.end:
            kind = min(last.kind, span.kind, key=_STRONGEST_FIRST.index)
            merged[-1] = Span(last.start, max(last.end, span.end), kind)
        else:
            merged.append(span)
    return merged


def _replace(data: bytes, spans: list[Span], syntax: Syntax) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for span in spans:
        pieces += (data[done : span.start], placeholder(span.kind, angle=syntax.angle))
        done = span.end
    pieces.append(data[done:])
    return b"".join(pieces)
