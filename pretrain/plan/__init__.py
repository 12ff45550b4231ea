"""Estimates of a run's parameters, FLOPs, memory and time from its config. `docs/plan.md` explains each."""
