"""Rules on HTML without text, XML under another language's extension, and plain text that does not belong to code."""

import re

import numpy as np

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile

# StarCoder2's limits.
_MIN_HTML_TEXT_SHARE = 0.2
_MIN_HTML_TEXT_CHARS = 100
_HIDING = re.compile(rb"<(script|style)[\s/>]|<!--")
_TAG_STARTS = np.zeros(256, bool)
_TAG_STARTS[np.frombuffer(b"/!?abcdefghijklmnopqrstuvwxyz", np.uint8)] = True


def html_text(file: TextFile, _: FiltersConfig) -> Rejection | None:
    """Reject HTML of which at most a fifth is visible text, or with fewer than 100 visible characters.

    The value is the share; the detail is the number of characters.
    """
    if file.language != "HTML":
        return None
    num_chars = num_visible_chars(file.data)
    share = num_chars / max(file.num_chars, 1)
    if share > _MIN_HTML_TEXT_SHARE and num_chars >= _MIN_HTML_TEXT_CHARS:
        return None
    return Rejection("html_text", share, f"{num_chars} characters")


def num_visible_chars(html: bytes) -> int:
    """Return the number of characters outside tags, comments, scripts and styles, including white space."""
    text = np.frombuffer(_remove_hidden(html.lower()), np.uint8)
    # Characters, not bytes: continuation bytes do not count.
    done = np.concatenate(([0], np.cumsum((text & 0xC0) != 0x80, dtype=np.int64)))
    marks = np.flatnonzero((text == ord("<")) | (text == ord(">")))
    if not len(marks):
        return int(done[-1])
    # A "<" opens a tag only before a name, "/", "!" or "?"; else it is text.
    following = text[np.minimum(marks + 1, len(text) - 1)]
    is_open = (text[marks] == ord("<")) & _TAG_STARTS[following]
    is_mark = is_open | (text[marks] == ord(">"))
    marks, is_open = marks[is_mark], is_open[is_mark]
    bounds = np.concatenate((marks, [len(text)]))
    hidden = done[bounds[1:]] - done[bounds[:-1]]
    # A ">" ends a tag only if one is open; then it is itself hidden.
    closes = ~is_open & np.concatenate(([False], is_open[:-1]))[: len(is_open)]
    return int(done[-1] - hidden[is_open].sum() - closes.sum())


def _remove_hidden(html: bytes) -> bytes:
    """Return `html`, which is in lower case, without comments and the contents of scripts and styles."""
    kept: list[bytes] = []
    position = 0
    while (found := _HIDING.search(html, position)) is not None:
        kept.append(html[position : found.start()])
        closing = b"</" + found[1] if found[1] else b"-->"
        end = html.find(closing, found.end())
        if end < 0:
            return b"".join(kept)
        # The closing tag stays, and is hidden like other tags.
        position = end if found[1] else end + len(closing)
    return b"".join((*kept, html[position:]))


_FIRST_BYTES = 100
_XML = frozenset({"XML", "SVG", "HTML", "XSLT", "XML Property List", "Web Ontology Language", "RDF"})


def xml_in_disguise(file: TextFile, _: FiltersConfig) -> Rejection | None:
    """Reject files that are not of an XML language, but have an XML declaration in their first 100 bytes."""
    if file.language in _XML:
        return None
    where = file.data.find(b"<?xml version=", 0, _FIRST_BYTES)
    return Rejection("xml_in_disguise", float(where)) if where >= 0 else None


_PLAIN_TEXT_NAMES = frozenset({"readme", "notes", "todo", "description", "cmakelists"})


def plain_text(file: TextFile, _: FiltersConfig) -> Rejection | None:
    """Reject plain text that is neither a list of requirements nor named readme, notes or the like.

    The detail is the name.
    """
    if file.language != "Text":
        return None
    # requirements.txt, requirements-dev.txt, dev_requirements.txt
    if "requirement" in file.name or file.name.partition(".")[0] in _PLAIN_TEXT_NAMES:
        return None
    return Rejection("plain_text", None, file.name)
