"""From shards to fixed-shape batches of lanes."""
