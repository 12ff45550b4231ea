"""The downstream tasks, one file each, and their shared code."""
