"""What benchmarks/results.md says of predictions beyond their metrics; each file reads what an experiment left."""
