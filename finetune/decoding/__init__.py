"""How systems that write choose their tokens."""
