"""Evaluation sets kept out of the corpus."""
