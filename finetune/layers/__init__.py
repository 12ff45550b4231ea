"""Layers of finetuned systems."""
