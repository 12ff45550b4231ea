"""The analyses of predictions beyond metrics in benchmarks/results.md; each file reads an experiment's predictions."""
