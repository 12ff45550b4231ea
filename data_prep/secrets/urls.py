"""Passwords in URLs and credentials in HTTP's Authorization header."""

import base64
import binascii
import re

from data_prep.secrets.addresses import is_example_domain
from data_prep.secrets.dummies import is_dummy_password, is_dummy_token
from data_prep.secrets.text import Span, Text

_USER = re.compile(rb"://([^\s\"'`/?#@:<>{}()\[\]]{0,128}):([^\s\"'`/?#@<>]{1,256})@([A-Za-z0-9._-]{1,253})")
_TEMPLATE = re.compile(
    rb"^[$%].*|\$\{|\{[\w.]*\}|^\[.*\]$|^\*+$|%s|%\(|\.\.\.|[{}()]|^(?i:pass|passwd|pwd|pw|xxx+)$"
)
_BASIC = re.compile(rb"basic[ :=]{1,3}([A-Za-z0-9+/]{8,512}={0,2})(?![\w+/])", re.IGNORECASE)
_BEARER = re.compile(rb"bearer[ :=]{1,3}([A-Za-z0-9._~+/-]{20,2048}={0,2})", re.IGNORECASE)


def url_password_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the password in scheme://user:password@host, unless the host or user and password are examples."""
    match = _USER.match(text.data, at)
    if match is None:
        return None
    user, password, host = match[1], match[2], match[3].lower()
    if _TEMPLATE.search(password) or host == b"localhost" or is_example_domain(host):
        return None
    if b"." not in host and (password == user or is_dummy_password(password)):
        return None
    return Span(match.start(2), match.end(2), "url_password")


def basic_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the base64 of user:password after the word Basic."""
    match = _BASIC.match(text.data, at)
    if match is None:
        return None
    try:
        decoded = base64.b64decode(match[1] + b"=" * (-len(match[1]) % 4), validate=True)
    except binascii.Error:
        return None
    user, colon, password = decoded.partition(b":")
    if not colon or not password or not decoded.isascii() or not decoded.decode().isprintable():
        return None
    return Span(match.start(1), match.end(1), "url_password")


def bearer_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the token after the word Bearer; it has digits and letters, unlike the next word of a sentence."""
    match = _BEARER.match(text.data, at)
    if match is None:
        return None
    token = match[1]
    if not any(48 <= byte <= 57 for byte in token) or not any(byte > 64 for byte in token):
        return None
    return None if is_dummy_token(token) else Span(match.start(1), match.end(1), "service_token")
