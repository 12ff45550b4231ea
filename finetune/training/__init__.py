"""Training a system on a task: batches, steps, early stopping, checkpoints that a killed run resumes from."""
