"""Decoding of a file's bytes to UTF-8 text.

The first of these rules that applies decides:

1. A byte-order mark decides: UTF-8, UTF-16 or UTF-32. The mark is removed.
2. Bytes with NULs are UTF-16 without a mark if nearly all NULs are at odd, or nearly all at even, positions and
   the rest decodes; otherwise they are `binary` (value: the share of NULs). Files that begin with the magic bytes of
   a known binary format are `binary`, too.
3. ASCII is text, whatever is declared.
4. A Python file that is not ASCII is read in the encoding that it declares (PEP 263), if that is a known text
   encoding; a wrong or unknown declaration is ignored.
5. UTF-8.
6. Latin-1, if the policy allows it and the bytes look like it: no C1 controls, non-ASCII bytes in runs of at most
   three, and none of Latin-1's signs (0xA1 to 0xBF) between two letters. Names and words in Western European comments
   meet these conditions. Text in GBK, Shift-JIS, EUC, KOI8, Windows or ISO 8859-2 code pages nearly always fails one
   of them and is dropped: a wrong code page would put well-formed nonsense into the corpus that no later rule detects.
7. Otherwise the file fails the rule `decodable` (value: where UTF-8 failed, in bytes).

Line ends become "\\n", from "\\r\\n" and from a lone "\\r". Form feeds, vertical tabs and U+2028 stay as they are and
do not end lines.
"""

import re
from codecs import lookup
from dataclasses import dataclass
from typing import Literal

from cluster.config import Config
from data_prep.documents import Rejection

_MARKS = (
    # UTF-32 first: its little-endian mark begins with UTF-16's.
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_MAGIC = (
    (b"%PDF-", "PDF"),
    (b"\x89PNG", "PNG"),
    (b"GIF8", "GIF"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x7fELF", "ELF"),
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"!<arch>\n", "ar"),
    (b"wOFF", "WOFF"),
    (b"wOF2", "WOFF2"),
    (b"OggS", "Ogg"),
    (b"RIFF", "RIFF"),
    (b"\xca\xfe\xba\xbe", "Java class"),
)
_MAGIC_STARTS = tuple(magic for magic, _ in _MAGIC)
_UTF16_SAMPLE_BYTES = 4096
_DECLARATION = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_PYTHON_SUFFIXES = (".py", ".pyi", ".pyw")
# The encodings that a file may declare. Python's other codecs are transformations (rot13), take quadratic time
# (punycode) or decode anything (unicode_escape).
_DECLARABLE = re.compile(
    r"utf-(8(-sig)?|16|32)|ascii|iso8859-\d+|cp\d+|koi8-[rut]|mac-\w+|kz1048|ptcp154|tis-620"
    r"|gb2312|gbk|gb18030|big5(hkscs)?|shift_jis\w*|euc_\w+|johab"
)
_BIDI = re.compile(rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])")
# Signs that do occur inside words are allowed: the ordinal indicators, the middle dot of Catalan, the micro sign.
_NOT_LATIN1 = re.compile(
    rb"[\x80-\x9f]|[\xa0-\xff]{4}|[A-Za-z][\xa1-\xa9\xab-\xb4\xb6\xb8\xb9\xbb-\xbf][a-z\xa1-\xff]"
)


class DecodingConfig(Config):
    """What to do with bytes that are neither UTF-8 nor in the encoding that they declare."""

    # "decode" decodes text that looks like Latin-1; "drop" drops it.
    latin1: Literal["decode", "drop"] = "decode"


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A file's text in UTF-8 with "\\n" line ends, and flags for how it was decoded.

    `flags`, sorted: `bidi` (contains U+202A-202E or U+2066-2069, which change how code is displayed), `bom`,
    `crlf` (line ends were changed), `latin1`, `declared` (a Python declaration was used), `utf16`, `utf32`.
    """

    data: bytes
    flags: tuple[str, ...] = ()


def decode(data: bytes, path: str, policy: DecodingConfig) -> DecodedText | Rejection:
    """Return the text of a file's bytes, or a rejection by rule `binary` or `decodable`; never raises."""
    if data.isascii() and b"\0" not in data and not data.startswith(_MAGIC_STARTS):
        # The fast path for most files: nothing is copied or examined twice.
        return _finish(data, ())
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_marked(data[len(mark) :], encoding)
    magic = next((name for magic, name in _MAGIC if data.startswith(magic)), None)
    if magic is not None:
        return Rejection("binary", data.count(0) / len(data), magic)
    if b"\0" in data:
        return _decode_with_nuls(data)
    return _decode_eight_bit(data, path, policy)


def _decode_marked(data: bytes, encoding: str) -> DecodedText | Rejection:
    flags = ("bom",) if encoding == "utf-8" else ("bom", encoding[:6].replace("-", ""))
    try:
        text = data if encoding == "utf-8" and data.isascii() else data.decode(encoding).encode()
    except ValueError as error:
        return Rejection("decodable", float(getattr(error, "start", 0)), encoding)
    if b"\0" in text:
        return Rejection("binary", text.count(0) / len(text), encoding)
    return _finish(text, flags)


def _decode_with_nuls(data: bytes) -> DecodedText | Rejection:
    share = data.count(0) / len(data)
    sample = data[:_UTF16_SAMPLE_BYTES]
    odd, even = sample[1::2].count(0), sample[::2].count(0)
    # Text in Latin letters has a NUL in nearly every other byte; programs and images have them at both parities.
    encoding = "utf-16-le" if odd > 20 * even else "utf-16-be" if even > 20 * odd else None
    if encoding is None or odd + even < 0.25 * len(sample):
        return Rejection("binary", share)
    try:
        text = data.decode(encoding).encode()
    except ValueError:
        return Rejection("binary", share)
    return Rejection("binary", share) if b"\0" in text else _finish(text, ("utf16",))


def _decode_eight_bit(data: bytes, path: str, policy: DecodingConfig) -> DecodedText | Rejection:
    if path.endswith(_PYTHON_SUFFIXES):
        declared = _decode_declared(data)
        if declared is not None:
            return _finish(declared, ("declared",))
    try:
        data.decode()
        return _finish(data, ())
    except UnicodeDecodeError as error:
        where = error.start
    if policy.latin1 == "decode" and not _NOT_LATIN1.search(data):
        return _finish(data.decode("latin-1").encode(), ("latin1",))
    return Rejection("decodable", float(where))


def _decode_declared(data: bytes) -> bytes | None:
    """Return UTF-8 text by the encoding declared in the first two lines; None without a usable one or for UTF-8."""
    if b"coding" not in data[:400]:
        return None
    for line in data.split(b"\n", 2)[:2]:
        found = _DECLARATION.match(line)
        if found is not None:
            try:
                encoding = lookup(found[1].decode("ascii", "replace")).name
                if encoding.startswith("utf-8") or not _DECLARABLE.fullmatch(encoding):
                    return None
                return data.decode(encoding).encode()
            except (LookupError, ValueError):
                return None
    return None


def _finish(data: bytes, flags: tuple[str, ...]) -> DecodedText:
    """Normalise the line ends of UTF-8 bytes and set the flags `crlf` and `bidi`."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        flags = (*flags, "crlf")
    if not data.isascii() and _BIDI.search(data):
        flags = (*flags, "bidi")
    return DecodedText(data, tuple(sorted(flags)))
