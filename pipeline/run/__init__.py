"""Runs a graph of stages in a run's folder."""
