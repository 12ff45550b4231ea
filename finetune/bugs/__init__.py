"""Realistic bugs put into working functions, to learn repair from."""
