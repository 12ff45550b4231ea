"""The report of a run and of an experiment, and the tables on the terminal."""
