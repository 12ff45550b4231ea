"""The token ledger: which tokens each step of a run consumed, proven from its journal and the corpus' manifest."""
