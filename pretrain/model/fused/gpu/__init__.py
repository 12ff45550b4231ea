"""Attention for GPUs, in Triton: forward and backward without a tensor of rows x keys in memory."""
