"""Adapting a pretrained model to code tasks, each beside a baseline."""
