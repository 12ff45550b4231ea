"""Rules that drop a file, by what they look at; `registry.RULES` lists them."""
