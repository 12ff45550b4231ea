"""Realistic bugs injected into working functions, as training data for repair."""
