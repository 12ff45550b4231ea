"""Corpora to shards: sources, filters, duplicates, split, tokenizer, WebDataset tars, and their reader."""
