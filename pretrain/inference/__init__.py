"""What one checkpoint is used for: completing, filling in, scoring and embedding code."""
