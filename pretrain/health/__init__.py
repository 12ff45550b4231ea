"""Detection of loss spikes, divergence, hanging and slow workers; requests to stop."""
