"""The metrics of all tasks, each with a confidence interval."""
