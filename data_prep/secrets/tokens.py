"""Finders of services' tokens."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator

from data_prep.secrets.dummies import is_dummy_token
from data_prep.secrets.text import Span, Text
from data_prep.secrets.token_forms import TokenForm

# Three parts of base64, of which the third, the signature, may be missing; not in the middle of a word.
_JWT = re.compile(rb"(?<![A-Za-z0-9_-])eyJ[\w=-]{8,4096}+\.[\w=-]{4,8192}+(?:\.[\w.+/=-]{0,8192}+)?")

# Tokens without a fixed beginning: their shape in a transformed copy of the text, and the pattern.
_TWILIO_SHAPE, _TWILIO = (
    b"AA" + b"a" * 32,
    re.compile(rb"(?<![A-Za-z0-9])(?:AC|SK)[a-z0-9]{32}(?![A-Za-z0-9])"),
)
_MAILCHIMP_SHAPE, _MAILCHIMP = b"a" * 32 + b"-aaa", re.compile(rb"[0-9a-z]{32}-us[0-9]{1,2}(?![0-9])")
_DISCORD_SHAPE = b".aaaaaa." + b"a" * 27
_DISCORD = re.compile(
    rb"(?<![\w-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}(?![\w-])"
)
_MAX_DISCORD_ID_BYTES = 28
_ARTIFACTORY = re.compile(rb"AP[\dA-F][a-zA-Z0-9]{8,128}(?=[\s\"']|\Z)")
_ARTIFACTORY_CONTEXT = re.compile(rb"artif|jfrog", re.IGNORECASE)
_CONTEXT_BYTES = 48


def token_finder(form: TokenForm) -> Callable[[Text, int, int], Span | None]:
    """Return a finder of this form's tokens at an anchor's position."""

    def find(text: Text, at: int, _end: int) -> Span | None:
        match = form.pattern.match(text.data, at)
        if match is None:
            return None
        group = 1 if form.pattern.groups else 0
        token = match[group]
        if (not form.any_fill or b"EXAMPLE" in token) and is_dummy_token(token):
            return None
        return Span(match.start(group), match.end(group), "service_token")

    return find


def jwt_at(text: Text, at: int, _end: int) -> Span | None:
    """Return a JSON web token, whose header and claims must be JSON."""
    match = _JWT.match(text.data, at)
    if match is None:
        return None
    parts = match[0].rstrip(b".").split(b".")
    if not all(_is_json(part) for part in parts[:2]):
        return None
    return Span(match.start(), match.end(), "service_token")


def shaped_token_spans(text: Text) -> Iterator[Span]:
    """Yield tokens of Twilio, Mailchimp, Discord and Artifactory, which have a shape but no fixed beginning."""
    yield from _find_shape(text, text.cases, _TWILIO_SHAPE, _TWILIO, 0)
    yield from _find_shape(text, text.cases, _MAILCHIMP_SHAPE, _MAILCHIMP, 0)
    yield from _find_shape(text, text.runs, _DISCORD_SHAPE, _DISCORD, _MAX_DISCORD_ID_BYTES)
    for match in _ARTIFACTORY.finditer(text.data):
        before = text.data[max(0, match.start() - _CONTEXT_BYTES) : match.start()]
        if before[-1:] not in (b"", b" ", b"=", b":", b'"', b"'", b"\n", b"\t", b"\r"):
            continue
        if _ARTIFACTORY_CONTEXT.search(before) or any(48 <= byte <= 57 for byte in match[0]):
            yield Span(match.start(), match.end(), "service_token")


def _find_shape(
    text: Text, form: bytes, shape: bytes, pattern: re.Pattern[bytes], back: int
) -> Iterator[Span]:
    at = form.find(shape)
    while at >= 0:
        match = (
            pattern.search(text.data, max(0, at - back), at + len(shape) + 16)
            if back
            else (pattern.match(text.data, at))
        )
        if match is not None:
            yield Span(match.start(), match.end(), "service_token")
        at = form.find(shape, max(at + 1, match.end() if match else 0))


def _is_json(part: bytes) -> bool:
    stripped = part.rstrip(b"=")
    try:
        json.loads(base64.urlsafe_b64decode(stripped + b"=" * (-len(stripped) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return True
