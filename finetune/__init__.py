"""Finetuning of a pretrained model on code tasks, each compared with a baseline."""
