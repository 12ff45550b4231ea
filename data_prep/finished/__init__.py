"""The finished prep folder: its files, their reader, and what can be done with them."""
