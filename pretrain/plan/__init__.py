"""What a run will take, before it runs: parameters, FLOPs, memory, time. `docs/plan.md` says how each is counted."""
