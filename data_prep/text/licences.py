"""Licences of files and repositories as SPDX expressions, and the rule `licence`."""

import re
from functools import cache
from typing import Any, Literal

from license_expression import LicenseWithExceptionSymbol, get_spdx_licensing
from pydantic import Field, field_validator

from cluster.config import Config
from data_prep.documents import Rejection
from data_prep.text.language_content import BY_CHOICE
from data_prep.text.language_names import BY_EXTENSION
from data_prep.text.licence_phrases import (
    ALIASES,
    HEADER_PHRASES,
    LICENCE_PHRASES,
    PERMISSIVE,
    PHRASE_HINTS,
)

UNKNOWN_LICENCE = "unknown"
"""A licence that is named, but not recognised; None means that none is named."""

_HEADER_BYTES = 4000
_LICENCE_FILE_BYTES = 20_000
_SPDX = re.compile(rb"SPDX-License-Identifier:[ \t]*([^\n*#\"'<>]+)")
_AT_LICENCE = re.compile(rb"@licen[sc]e[ \t]+([\w.+-]+(?:[ \t][\w.+-]+){0,3})", re.I)
_LICENCE_NAME = re.compile(
    r"(?:licen[sc]es?|copying|copyright|unlicen[sc]e|mit-licen[sc]e|apache-licen[sc]e|notice|legal)"
    r"(?:[-_.](?P<which>[\w.+-]+?))?(?:\.(?:txt|md|rst|markdown|html))?",
    re.I,
)
# Files with these names contain the project's own licence; other licence files may be notices or third-party licences.
_OWN_LICENCE_NAME = re.compile(r"(?:(?:un)?licen[sc]e|copying)(?:\.(?:txt|md|rst|markdown|html))?", re.I)
# A link to the licence in a parent folder, or a page of documentation that includes it.
_POINTS_UP = re.compile(rb"\.\./|include::")
# What tools write when they have no licence information.
_NO_INFORMATION = frozenset({"", "unknown", "none", "noassertion"})
_PROSE = frozenset({"Text", "Markdown", "reStructuredText", "HTML"})
_WORD_BREAKS = re.compile(rb"[\s*#;/%\-\"'`]+")
_GPL = re.compile(r"(?:gnu )?([al]?)gpl ?v?(\d(?:\.\d)?)( only|\+| ?(?:or|and) (?:later|newer|above))?")
_PUNCTUATION = re.compile(r"[\s,_()\-]+")
_COMBINED = re.compile(r"\s+(?:and|or|with)\s+|[()]", re.I)


class LicenceConfig(Config):
    """The licences that a file may have."""

    # SPDX identifiers; the default is the permissive licences.
    allow: tuple[str, ...] = Field(default=PERMISSIVE, min_length=1)
    # Files without a recognised licence. "keep", because most users train on their own code, which names none; for
    # code of others "drop" is the careful choice.
    unknown: Literal["keep", "drop"] = "keep"

    @field_validator("allow")
    @classmethod
    def _are_known(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for name in allow:
            if name not in PERMISSIVE and _as_expression(normalise_licence(name) or name) is None:
                raise ValueError(f"{name!r} is not an SPDX identifier")
        return allow


def header_licence(data: bytes) -> str | None:
    """Return the licence named in a file's first 4 KB by an SPDX tag, @license, or the words of a known header.

    UNKNOWN_LICENCE for an SPDX tag that is not recognised. For @license it is None, because the words after that are
    often not the name of a licence.
    """
    head = data[:_HEADER_BYTES]
    if not any(hint in head for hint in PHRASE_HINTS):
        return None
    is_named = False
    for pattern in (_SPDX, _AT_LICENCE):
        found = pattern.search(head)
        if found is not None:
            name = found[1].decode("utf-8", "replace").strip(" \t\r-")
            licence = normalise_licence(name)
            if licence is not None:
                return licence
            # Templates and patterns in place of a name are ignored.
            is_named |= pattern is _SPDX and name[:1].isalnum() and name.lower() not in _NO_INFORMATION
    return _by_phrases(head, HEADER_PHRASES) or (UNKNOWN_LICENCE if is_named else None)


def declared_licence(name: str | None) -> str | None:
    """Return the licence that a source declares as an SPDX expression, UNKNOWN_LICENCE if it is not recognised."""
    if name is None or name.strip().lower() in _NO_INFORMATION:
        return None
    return normalise_licence(name) or UNKNOWN_LICENCE


def is_licence_file(path: str) -> bool:
    """Return whether a file's name is that of a licence: LICENSE, COPYING.LIB, LICENSE-MIT, MIT-LICENSE.txt."""
    name = path.rpartition("/")[2]
    extension = name.rpartition(".")[2].lower()
    is_prose = extension not in BY_CHOICE and BY_EXTENSION.get(extension, "Text") in _PROSE
    return is_prose and _LICENCE_NAME.fullmatch(name) is not None


def licence_of_file(path: str, data: bytes) -> str | None:
    """Return the licence in a licence file, UNKNOWN_LICENCE for a text that is not recognised.

    None for other files, and for licence files that point to another, are empty or contain only notices.
    """
    if not is_licence_file(path):
        return None
    text = data[:_LICENCE_FILE_BYTES]
    licence = _by_phrases(text, LICENCE_PHRASES) or header_licence(text)
    if licence is not None or not text.strip() or _POINTS_UP.search(text):
        return licence
    return UNKNOWN_LICENCE if _OWN_LICENCE_NAME.fullmatch(path.rpartition("/")[2]) else None


def _by_phrases(text: bytes, phrases: tuple[tuple[str, tuple[bytes, ...]], ...]) -> str | None:
    """Return the licence all of whose phrases occur in `text` and whose first phrase comes first.

    Of several at the same place, return the first in the table. Case, comment signs and line ends are ignored.
    """
    words = _WORD_BREAKS.sub(b" ", text).lower()
    places = [
        (words.find(needed[0]), licence)
        for licence, needed in phrases
        if all(phrase in words for phrase in needed)
    ]
    return min(places, key=lambda place: place[0])[1] if places else None


@cache
def normalise_licence(text: str) -> str | None:
    """Return the SPDX expression for a licence as people write it, None if it is not recognised.

    Identifiers, names ("MIT License", "GPLv3+"), trove classifiers, and AND, OR, WITH between them are understood.
    """
    text = text.strip().removeprefix("License :: ").removeprefix("OSI Approved :: ").strip()
    if not text or len(text) > 300:
        return None
    alias = _alias(text)
    return alias or _as_expression(text) or _normalise_parts(text)


def licence_rejection(spdx: str | None, config: LicenceConfig) -> Rejection | None:
    """Return a rejection by rule `licence`, with the expression as its detail, or None if `config` allows it.

    Of an OR one side must be allowed, of an AND all; an exception (WITH) only adds permissions. A licence that is not
    SPDX is unknown.
    """
    licence = None if spdx is None else normalise_licence(spdx)
    if licence is None:
        return None if config.unknown == "keep" else Rejection("licence", None, spdx or "unknown")
    return None if _is_allowed(licence, config.allow) else Rejection("licence", None, licence)


@cache
def _is_allowed(licence: str, allow: tuple[str, ...]) -> bool:
    licensing = _licensing()
    allowed = {normalise_licence(name) or name for name in allow}

    def is_node_allowed(node: Any) -> bool:
        if isinstance(node, licensing.OR):
            return any(map(is_node_allowed, node.args))
        if isinstance(node, licensing.AND):
            return all(map(is_node_allowed, node.args))
        if isinstance(node, LicenseWithExceptionSymbol):
            return node.render() in allowed or node.license_symbol.key in allowed
        return node.key in allowed

    return is_node_allowed(licensing.parse(licence))


def _as_expression(text: str) -> str | None:
    try:
        return str(_licensing().parse(text, validate=True, strict=True).render())
    except Exception:
        # On arbitrary text from a corpus the parser raises, besides its own errors, whatever its internals fail with.
        return None


def _alias(text: str) -> str | None:
    plain = _PUNCTUATION.sub(" ", text.lower()).replace("licence", "license").strip()
    plain = plain.removeprefix("the ").removesuffix(".")
    for shorter in (
        plain,
        plain.removesuffix(" license"),
        plain.replace(" version ", " ").replace(" v", " "),
    ):
        if shorter in ALIASES:
            return ALIASES[shorter]
    gpl = _GPL.fullmatch(plain)
    if gpl is None:
        return None
    number = gpl[2] if "." in gpl[2] else f"{gpl[2]}.0"
    later = gpl[3] is not None and gpl[3] != " only"
    return f"{gpl[1].upper()}GPL-{number}-{'or-later' if later else 'only'}"


def _normalise_parts(text: str) -> str | None:
    """Normalise an expression of names rather than identifiers; lists with "," ";" "/" mean a choice."""
    if not _COMBINED.search(text):
        parts = [part for part in re.split(r"\s*[;,/|&]\s*", text) if part]
        known = [normalise_licence(part) for part in parts] if len(parts) > 1 else []
        return _join_choices(known)
    pieces = re.split(r"(\s+(?:and|or|with)\s+|[()])", text, flags=re.I)
    known_pieces = []
    for piece in pieces:
        word = piece.strip().upper()
        if word in ("AND", "OR", "WITH", "(", ")", ""):
            known_pieces.append(word)
        elif (alias := _alias(piece)) is not None:
            known_pieces.append(f"({alias})" if " " in alias else alias)
        else:
            known_pieces.append(piece.strip())
    return _as_expression(" ".join(known_pieces))


def _join_choices(licences: list[str | None]) -> str | None:
    known = list(dict.fromkeys(licence for licence in licences if licence is not None))
    # With an unrecognised item, nothing is certain about the list.
    if not known or len(known) < len(set(licences)):
        return None
    return " OR ".join(f"({licence})" if " AND " in licence else licence for licence in known)


@cache
def _licensing() -> Any:
    return get_spdx_licensing()
