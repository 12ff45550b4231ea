"""Attention and cross entropy for CPUs, in C++."""
