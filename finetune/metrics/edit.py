"""Edit similarity, in percent, and the literals of line completion."""

import re
from collections.abc import Sequence

import numpy as np
from rapidfuzz import fuzz

from finetune.metrics.measured import Measured, mean_of
from finetune.metrics.texts import check_texts

_BARE_LITERALS = {"<NUM_LIT>": "0", "<STR_LIT>": "", "<CHAR_LIT>": ""}
_KEPT_LITERAL = re.compile(r"<(STR|NUM|CHAR)_LIT:(.*?)>", re.DOTALL)


def edit_similarity(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Mean of `rapidfuzz.fuzz.ratio` with the most similar reference, white space at the ends taken off.

    That is 100 * (1 - d / (length + length)), d the least number of single characters inserted and deleted. The
    official evaluator of line completion calls `fuzzywuzzy`, which gives this ratio rounded to an integer where
    python-Levenshtein is installed, and difflib's lower one where it is not: a published number may be of either.
    """
    check_texts(references, written)
    values = [
        max(fuzz.ratio(one.strip(), text.strip()) for text in texts)
        for texts, one in zip(references, written, strict=True)
    ]
    return mean_of("edit_similarity", np.array(values))


def plain_literals(code: str) -> str:
    """Line completion's normalised literals as text: `<NUM_LIT:1>` becomes 1, `<NUM_LIT>` 0, `<STR_LIT>` and
    `<CHAR_LIT>` nothing.

    Both sides go through this before they are compared. It is the official evaluator's rule (CodeXGLUE,
    CodeCompletion-line/evaluator), also where a system writes literals within literals: one that is found is replaced
    wherever it stands, before the next one is.
    """
    for literal, text in _BARE_LITERALS.items():
        code = code.replace(literal, text)
    for kind, value in _KEPT_LITERAL.findall(code):
        code = code.replace(f"<{kind}_LIT:{value}>", value)
    return code
