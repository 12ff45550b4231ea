"""Systems that write a text for a text."""
