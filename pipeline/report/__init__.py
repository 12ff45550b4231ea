"""The reports of runs and experiments, and the tables on the terminal."""
