"""Near duplicates."""
