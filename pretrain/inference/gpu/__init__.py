"""Decoding on GPUs: attention of few rows in one launch, whole passes as CUDA graphs."""
