"""Bytes of a file to UTF-8 text, by a stated policy.

In this order:

1. A byte-order mark decides: UTF-8, UTF-16 or UTF-32. The mark is removed.
2. Bytes with NULs are UTF-16 without a mark if nearly all NULs lie at odd, or nearly all at even, positions and
   the rest decodes; otherwise they are `binary` (value: the share of NULs), as is what begins with the magic
   bytes of a known binary format.
3. ASCII is text, whatever is declared.
4. A Python file that is not ASCII is read in the encoding it declares (PEP 263), if that is a text encoding we
   know; a wrong or unknown declaration is passed over.
5. UTF-8.
6. Latin-1, if the policy says so and the bytes look like it: no C1 controls, bytes beyond ASCII in runs of at most
   three, and none of Latin-1's signs (0xA1 to 0xBF) between two letters. So are names and words in Western
   European comments. Text in GBK, Shift-JIS, EUC, KOI8, Windows or ISO 8859-2 code pages nearly always breaks one
   of these, and is dropped: a wrong code page puts well-formed nonsense into the corpus that nothing later finds.
7. Otherwise the file is not `decodable` (value: where UTF-8 failed, in bytes).

Line ends become "\\n": "\\r\\n" and a lone "\\r" alike. Form feeds, vertical tabs and U+2028 stay as they are and do
not end lines.
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
# What a file may declare. Others of Python's codecs are transformations (rot13), need not end (punycode is
# quadratic) or make text out of anything (unicode_escape).
_DECLARABLE = re.compile(
    r"utf-(8(-sig)?|16|32)|ascii|iso8859-\d+|cp\d+|koi8-[rut]|mac-\w+|kz1048|ptcp154|tis-620"
    r"|gb2312|gbk|gb18030|big5(hkscs)?|shift_jis\w*|euc_\w+|johab"
)
_BIDI = re.compile(rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])")
# Signs that do stand inside words: the ordinal indicators, the middle dot of Catalan, the micro sign.
_NOT_LATIN1 = re.compile(
    rb"[\x80-\x9f]|[\xa0-\xff]{4}|[A-Za-z][\xa1-\xa9\xab-\xb4\xb6\xb8\xb9\xbb-\xbf][a-z\xa1-\xff]"
)


class DecodingConfig(Config):
    """What happens to bytes that are neither UTF-8 nor what they declare to be."""

    # "decode" takes what looks like Latin-1 for it; "drop" takes nothing for it.
    latin1: Literal["decode", "drop"] = "decode"


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A file's text in UTF-8 with "\\n" line ends, and what was noticed on the way.

    `flags`, sorted: `bidi` (holds U+202A-202E or U+2066-2069, which make code look other than it is), `bom`,
    `crlf` (line ends were changed), `latin1`, `declared` (a Python declaration was followed), `utf16`, `utf32`.
    """

    data: bytes
    flags: tuple[str, ...] = ()


def decode(data: bytes, path: str, policy: DecodingConfig) -> DecodedText | Rejection:
    """The text of a file's bytes, or rule `binary` or `decodable`; never raises for any bytes."""
    if data.isascii() and b"\0" not in data and not data.startswith(_MAGIC_STARTS):
        # Most files, so nothing is copied or looked at twice.
        return _finished(data, ())
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _marked(data[len(mark) :], encoding)
    magic = next((name for magic, name in _MAGIC if data.startswith(magic)), None)
    if magic is not None:
        return Rejection("binary", data.count(0) / len(data), magic)
    if b"\0" in data:
        return _with_nuls(data)
    return _eight_bit(data, path, policy)


def _marked(data: bytes, encoding: str) -> DecodedText | Rejection:
    flags = ("bom",) if encoding == "utf-8" else ("bom", encoding[:6].replace("-", ""))
    try:
        text = data if encoding == "utf-8" and data.isascii() else data.decode(encoding).encode()
    except ValueError as error:
        return Rejection("decodable", float(getattr(error, "start", 0)), encoding)
    if b"\0" in text:
        return Rejection("binary", text.count(0) / len(text), encoding)
    return _finished(text, flags)


def _with_nuls(data: bytes) -> DecodedText | Rejection:
    share = data.count(0) / len(data)
    sample = data[:_UTF16_SAMPLE_BYTES]
    odd, even = sample[1::2].count(0), sample[::2].count(0)
    # Text in Latin letters has a NUL in nearly every other byte; programs and images have them on both sides.
    encoding = "utf-16-le" if odd > 20 * even else "utf-16-be" if even > 20 * odd else None
    if encoding is None or odd + even < 0.25 * len(sample):
        return Rejection("binary", share)
    try:
        text = data.decode(encoding).encode()
    except ValueError:
        return Rejection("binary", share)
    return Rejection("binary", share) if b"\0" in text else _finished(text, ("utf16",))


def _eight_bit(data: bytes, path: str, policy: DecodingConfig) -> DecodedText | Rejection:
    if path.endswith(_PYTHON_SUFFIXES):
        declared = _declared(data)
        if declared is not None:
            return _finished(declared, ("declared",))
    try:
        data.decode()
        return _finished(data, ())
    except UnicodeDecodeError as error:
        where = error.start
    if policy.latin1 == "decode" and not _NOT_LATIN1.search(data):
        return _finished(data.decode("latin-1").encode(), ("latin1",))
    return Rejection("decodable", float(where))


def _declared(data: bytes) -> bytes | None:
    """UTF-8 text by the declaration in the first two lines; None without a usable one, or for UTF-8 itself."""
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


def _finished(data: bytes, flags: tuple[str, ...]) -> DecodedText:
    """Line ends and flags, for UTF-8 bytes."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        flags = (*flags, "crlf")
    if not data.isascii() and _BIDI.search(data):
        flags = (*flags, "bidi")
    return DecodedText(data, tuple(sorted(flags)))
