"""The training data: fixed-shape batches of lanes, read from shards."""
