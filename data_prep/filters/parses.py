"""Rule on Python that the running interpreter cannot parse: templates, Python 2, broken test inputs."""

import ast
import warnings

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def parses(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject Python with a syntax error; the value is its line (0 if the parser names none)."""
    if not config.parses or file.language != "Python":
        return None
    try:
        with warnings.catch_warnings():
            # Old escapes in strings cause warnings, but the code is valid.
            warnings.simplefilter("ignore")
            ast.parse(file.text)
    except SyntaxError as error:
        return Rejection("parses", float(error.lineno or 0))
    except (ValueError, RecursionError, MemoryError):
        # Null bytes, or expressions nested too deeply for the parser's stack.
        return Rejection("parses", 0.0)
    return None
