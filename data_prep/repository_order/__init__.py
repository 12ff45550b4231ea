"""A repository in the order a reader would need it."""
