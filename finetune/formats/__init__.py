"""Readers of the files that tasks are published in: parallel lines, JSON lines, JSON arrays, Parquet."""
