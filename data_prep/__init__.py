"""Corpora to shards: sources, filters, deduplication, split, tokenizer, shards, ledger."""
