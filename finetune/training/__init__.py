"""Training a system on a task: batches, steps, early stopping, commits that a killed run goes on from."""
