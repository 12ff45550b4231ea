"""Rules that drop a file, one module per rule, listed in `registry.RULES`."""
