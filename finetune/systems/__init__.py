"""The systems that are compared on a task: the permutation model in its uses, other networks, counting."""
