"""High-entropy strings in quotes or as values in configuration files: keys without a known form or name."""

import re
from collections.abc import Iterator

from data_prep.secrets.randomness import is_random_base64, is_random_hex
from data_prep.secrets.text import Span, Text

_MIN_BYTES = 20
# Longer ones are data: images, certificates, compiled tables.
_MAX_BYTES = 256
_MIN_BASE64_BITS = 4.5
_QUOTED = b'"' + b"a" * _MIN_BYTES
_CONTEXT_BYTES = 160
# SHA-1, SHA-224, SHA-256, SHA-384 and SHA-512 in hexadecimal; MD5 has the length of many keys.
_DIGEST_LENGTHS = frozenset((40, 56, 64, 96, 128))
_HASH_WORDS = re.compile(
    rb"sha[-_]?0|\bsha|md0|hash|digest|checksum|integrity|commit|revision|\brev\b|\bcrc|etag|fingerprint|\bsum\b|uuid|"
    rb"guid|\boid|blob|\btree\b|resolved|\bgit|public|\bpub|certificate|\bcert|version|build|data:|base00|icon|image|"
    rb"\bexpected|vector|nonce|\bsig(?:nature)?\b|\bid\b|_ids?\b|\bfont|ssh-|ecdsa|\bmd_|blake|fromhex|unhex|serial"
)
_ASSIGNED = re.compile(rb"(?:[\w\])}][ \t]*|[\"'`\])][ \t]*)(?::=|=>|={1,3}|!==?|:)[ \t]*[@bBrRuU]{0,2}\Z")
# An entry of a table: a name in quotes and a colon or an arrow.
_ENTRY = re.compile(rb"[\"'`]([^\"'`\n]{1,100})[\"'`][ \t]*(?::|=>)[ \t]*[bBrRuU]?\Z")
_FILE_NAME = re.compile(rb"[./@]")
_DIGEST = re.compile(rb"[\"'][0-9a-fA-F]{40,128}[\"']")
_ALPHABET = re.compile(rb"EXAMPLE|01234567|ABCDEFG|abcdefg")
_SUBRESOURCE = re.compile(rb"sha\d{1,3}[-=]|md5[-=]", re.IGNORECASE)
_UUID = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_BARE = re.compile(rb"[:=][ \t]{0,8}([A-Za-z0-9+/_=-]{20,256})[ \t]{0,8}(?=[\r\n]|\Z)")


def high_entropy_spans(text: Text) -> Iterator[Span]:
    """Yield quoted strings of base64 or hexadecimal characters that look random and not like a checksum.

    In configuration files, unquoted values count as well.
    """
    runs, data = text.runs, text.data
    if text.syntax.lock:
        return
    at = runs.find(_QUOTED)
    while at >= 0:
        end = _run_end(runs, at + 1 + _MIN_BYTES)
        if end - at - 1 <= _MAX_BYTES and data[end : end + 1] == data[at : at + 1] and _is_key(text, at, end):
            yield Span(at + 1, end, "high_entropy")
        at = runs.find(_QUOTED, end)
    if text.syntax.bare_values:
        for match in _BARE.finditer(data):
            if _is_key(text, match.start(1) - 1, match.end(1)):
                yield Span(match.start(1), match.end(1), "high_entropy")


def _run_end(runs: bytes, at: int) -> int:
    """Return the end of the run of "a" at `at`; bounded, because longer runs are only known to be too long."""
    piece = runs[at : at + _MAX_BYTES + 1]
    return at + len(piece) - len(piece.lstrip(b"a"))


def _is_key(text: Text, quote: int, end: int) -> bool:
    value = text.data[quote + 1 : end]
    if _ALPHABET.search(value):
        return False
    if is_random_hex(value):
        return not _is_checksum(text, quote, end)
    if not is_random_base64(value.rstrip(b"="), _MIN_BASE64_BITS):
        return False
    if _SUBRESOURCE.match(value) or _UUID.search(value):
        return False
    # Words before the value, on its line, may say that it is a hash.
    before = text.folded[max(0, quote - _CONTEXT_BYTES) : quote]
    return _HASH_WORDS.search(before[before.rfind(b"\n") + 1 :]) is None


def _is_checksum(text: Text, quote: int, end: int) -> bool:
    """Return whether words before the value mean a checksum, or it has a checksum's length and is not assigned.

    The latter are values in lists of hashes, in arguments, and in tables from files to hashes.
    """
    before = text.folded[max(0, quote - _CONTEXT_BYTES) : quote]
    if _HASH_WORDS.search(before):
        return True
    if end - quote - 1 not in _DIGEST_LENGTHS:
        return False
    entry = _ENTRY.search(before)
    if entry is None:
        return _ASSIGNED.search(before[-24:]) is None
    after = text.data[end : end + _CONTEXT_BYTES]
    return _FILE_NAME.search(entry[1]) is not None or any(
        _DIGEST.search(piece) for piece in (text.data[max(0, quote - _CONTEXT_BYTES) : quote], after)
    )
