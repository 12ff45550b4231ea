"""Readers of the file formats of published tasks: parallel lines, JSON lines, JSON arrays, Parquet."""
