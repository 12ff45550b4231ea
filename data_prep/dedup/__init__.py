"""Near-duplicate detection."""
