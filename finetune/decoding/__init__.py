"""Decoding: how systems that write choose their tokens."""
