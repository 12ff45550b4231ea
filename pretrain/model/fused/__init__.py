"""Attention for CPUs with shift, mask and softmax in one pass, in C++."""
