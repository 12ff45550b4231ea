"""Python that the running interpreter cannot parse: templates, Python 2, broken test inputs."""

import ast
import warnings

from data_prep.config import FiltersConfig
from data_prep.decoding import DecodedFile


def parses(file: DecodedFile, config: FiltersConfig) -> float | None:
    """The line the parser stopped at (0 where it names none); other languages pass."""
    if not config.parses or file.language != "Python":
        return None
    try:
        with warnings.catch_warnings():
            # Old escapes in strings warn; the code is fine all the same.
            warnings.simplefilter("ignore")
            ast.parse(file.text)
    except SyntaxError as error:
        return float(error.lineno or 0)
    except (ValueError, RecursionError, MemoryError):
        # Null bytes; expressions nested too deep for the parser's stack.
        return 0.0
    return None
