"""Edit similarity, in percent, and normalisation of the literals of line completion."""

import re
from collections.abc import Sequence

import numpy as np
from rapidfuzz import fuzz

from finetune.metrics.measured import Measured, mean_of
from finetune.metrics.texts import check_texts

_BARE_LITERALS = {"<NUM_LIT>": "0", "<STR_LIT>": "", "<CHAR_LIT>": ""}
_KEPT_LITERAL = re.compile(r"<(STR|NUM|CHAR)_LIT:(.*?)>", re.DOTALL)


def edit_similarity(references: Sequence[Sequence[str]], written: Sequence[str]) -> Measured:
    """Return the mean `rapidfuzz.fuzz.ratio` of stripped texts with their most similar reference.

    The ratio is 100 * (1 - d / (length + length)), with d the least number of single-character insertions and
    deletions. The official evaluator of line completion calls `fuzzywuzzy`, which computes this ratio rounded to an
    integer if python-Levenshtein is installed, and difflib's lower one if not: published scores may be either.
    """
    check_texts(references, written)
    values = [
        max(fuzz.ratio(one.strip(), text.strip()) for text in texts)
        for texts, one in zip(references, written, strict=True)
    ]
    return mean_of("edit_similarity", np.array(values))


def plain_literals(code: str) -> str:
    """Replace normalised literals by plain text.

    `<NUM_LIT:1>` becomes 1, `<NUM_LIT>` becomes 0, `<STR_LIT>` and `<CHAR_LIT>` are removed. Apply this to both sides
    of a comparison. It is the official evaluator's rule (CodeXGLUE, CodeCompletion-line/evaluator), also for literals
    within literals in a system's output: each literal that was found is replaced everywhere before the next one.
    """
    for literal, text in _BARE_LITERALS.items():
        code = code.replace(literal, text)
    for kind, value in _KEPT_LITERAL.findall(code):
        code = code.replace(f"<{kind}_LIT:{value}>", value)
    return code
