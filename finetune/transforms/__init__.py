"""Changes of code that keep what it does, to measure how much a model leans on names and layout."""
