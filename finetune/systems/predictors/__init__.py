"""Systems that predict every token of code from those before it."""
