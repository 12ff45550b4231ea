"""Where the wall time of a run went, from its journal and its heartbeat, over all restarts."""
