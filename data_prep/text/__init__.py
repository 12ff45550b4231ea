"""Text, language and licence of a file."""
