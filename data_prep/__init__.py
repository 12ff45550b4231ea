"""Corpus preparation: sources, filters, deduplication, splits, tokenizer, WebDataset tars, and their reader."""
