"""The two-stream permutation language model."""
