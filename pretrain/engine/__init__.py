"""The DeepSpeed engine: its construction, one update, and its state by parameter name."""
