"""Text and language of a file."""
