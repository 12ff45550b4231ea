"""Logs runs to MLflow: the store, runs, metrics and registered models."""
