"""Runs that go wrong: losses that jump, workers that hang or lag, requests to stop."""
