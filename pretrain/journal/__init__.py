"""The journal of a training: its events, who writes them, and what is left of a run after kills and rewinds."""
