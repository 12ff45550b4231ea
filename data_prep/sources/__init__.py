"""Sources of code files: one module per kind of corpus; `plan` makes their units of work."""
