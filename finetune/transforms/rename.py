"""Parameters and local variables get names that say nothing.

A name is changed everywhere in its outermost function or nowhere, to one that stands nowhere in the text; so nothing is
captured. Left alone are names that mean something outside the function too: builtins, attributes, keywords of calls,
names declared global, imported or used in a class within. Callers that pass a parameter by keyword from elsewhere
cannot be seen.
"""

from collections.abc import Iterator

import numpy as np
from tree_sitter import Node

from finetune.syntax import Edit, Parsed
from finetune.transforms.java_variables import java_variables
from finetune.transforms.python_variables import python_variables
from finetune.transforms.scopes import FreshNames, is_reflective, outermost_functions


def rename_variables(parsed: Parsed, generator: np.random.Generator) -> Iterator[Edit]:
    """The edits; names are given out in an order drawn by the generator."""
    if is_reflective(parsed):
        return
    fresh = FreshNames(parsed)
    find = python_variables if parsed.language == "python" else java_variables
    for function in outermost_functions(parsed):
        variables = find(parsed, function)
        names = sorted(variables)
        for index in generator.permutation(len(names)):
            new = fresh.next()
            yield from (_renamed(node, new) for node in variables[names[index]])


def _renamed(node: Node, name: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, name)
