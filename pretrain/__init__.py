"""The permutation language model and its pretraining: model, objective, lanes, step, loop, checkpoint."""
