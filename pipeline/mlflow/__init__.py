"""What MLflow shows of a run: its store, runs, metrics and registered models."""
