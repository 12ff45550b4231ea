"""Use of a trained model: completing, infilling, scoring and embedding code."""
