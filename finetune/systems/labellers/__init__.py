"""Systems that label texts."""
