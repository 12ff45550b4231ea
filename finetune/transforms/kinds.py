"""The transforms by name.

After Li et al., "A Closer Look into Transformer-Based Code Intelligence Through Code Transformation", 2022, which names
the groups; every transform here skips code if the text alone does not prove that its behaviour stays the same.
"""

from collections.abc import Callable, Iterable

import numpy as np

from cluster.errors import UserError
from finetune.syntax import Edit, Parsed, edited, parse
from finetune.transforms.dead_code import insert_dead_code
from finetune.transforms.loops import for_to_while
from finetune.transforms.permute import permute_statements
from finetune.transforms.rename import rename_variables
from finetune.transforms.swap import swap_branches
from pretrain.randomness import keyed_generator

Transform = Callable[[Parsed, np.random.Generator], Iterable[Edit]]
TRANSFORMS: dict[str, Transform] = {
    "rename": rename_variables,
    "dead_code": insert_dead_code,
    "permute": permute_statements,
    "for_to_while": for_to_while,
    "swap_branches": swap_branches,
}
TRANSFORMED_LANGUAGES = ("java", "python")


def transform(kind: str, code: str, language: str, seed: int) -> str | None:
    """Return the code with the transform applied wherever it is safe; a pure function of its arguments.

    The result parses and behaves as `code` does. None if there is nothing to change, the code does not parse (functions
    and methods alone do parse) or the language has no transforms. Raises UserError for an unknown kind.
    """
    if kind not in TRANSFORMS:
        raise UserError(f"there is no transform {kind!r}: choose from {', '.join(TRANSFORMS)}")
    parsed = parse(code, language)
    if parsed is None or parsed.language not in TRANSFORMED_LANGUAGES:
        return None
    return edited(parsed, TRANSFORMS[kind](parsed, keyed_generator(seed, f"transform-{kind}:{code}")))
