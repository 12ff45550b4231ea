"""The systems that are compared on a task: the permutation LM, other networks, and baselines that count or copy."""
