"""Decontamination: evaluation sets are kept out of the corpus."""
