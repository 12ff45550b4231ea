"""Validation: bits per byte by order and by language, with and without memory, each with a standard error."""
