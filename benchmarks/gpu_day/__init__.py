"""A day with a GPU, in eight minutes: everything about the kernels that only a GPU can tell."""
