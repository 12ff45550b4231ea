"""Transforms of code that keep its behaviour, to measure how much a model depends on names and layout."""
