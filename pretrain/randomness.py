"""Randomness by key, not by stream: every draw is a function of what it is for.

A key is (seed, purpose, integers such as step and lane), so a resumed run or another world size draws the same
numbers.
"""

import hashlib

import numpy as np


def key_seed(seed: int, purpose: str, *integers: int) -> int:
    """A 64-bit seed for one purpose; distinct keys give independent seeds."""
    text = ":".join([str(seed), purpose, *map(str, integers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def keyed_generator(seed: int, purpose: str, *integers: int) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.Generator(np.random.Philox(key=key_seed(seed, purpose, *integers)))


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Set torch's generators for one micro-batch of one step, named by its place in the global batch."""
    import torch

    key = key_seed(seed, "dropout", step, micro_batch)
    # torch.manual_seed keeps a stack trace of every call, and reads its source lines, for devices that never start.
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(key)
