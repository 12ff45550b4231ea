"""Layers that finetuned systems are made of."""
