"""Rule on minified code, recognised by its name or by how little white space it has."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import WHITESPACE, TextFile

_ENDINGS = (".min.js", ".min.mjs", ".min.cjs", ".min.css", "-min.js", "-min.css", ".bundle.js", ".bundle.css")
_LANGUAGES = frozenset({"JavaScript", "CSS", "TypeScript"})
# Hand-written code is 15 to 40 % white space; minified code that is wrapped at some column is under 3 %.
_MIN_WHITESPACE_SHARE = 0.06
# Short files may be one dense table or licence line.
_MIN_CHARS = 1000


def minified(file: TextFile, _: FiltersConfig) -> Rejection | None:
    """Reject files minified by their name (no value), and JavaScript, TypeScript and CSS with little white space.

    For the latter the value is the share of white space.
    """
    if file.name.endswith(_ENDINGS):
        return Rejection("minified", None, "name")
    if file.language not in _LANGUAGES or file.num_chars < _MIN_CHARS:
        return None
    share = file.count(WHITESPACE) / file.num_chars
    return Rejection("minified", share, "white space") if share < _MIN_WHITESPACE_SHARE else None
