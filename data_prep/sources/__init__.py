"""Where source files come from; one module per kind of corpus, planned by `plan`."""
