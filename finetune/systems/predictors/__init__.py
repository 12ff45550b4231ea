"""Systems that predict every token of a code from those before it."""
