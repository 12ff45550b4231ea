"""Randomness by key, not by stream: every draw is a function of its purpose.

A key is (seed, purpose, integers such as step and lane), so a resumed run or another world size draws the same
numbers.
"""

import hashlib

import numpy as np


def key_seed(seed: int, purpose: str, *integers: int) -> int:
    """Return a 64-bit seed for one purpose; distinct keys give independent seeds."""
    text = ":".join([str(seed), purpose, *map(str, integers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def keyed_generator(seed: int, purpose: str, *integers: int) -> np.random.Generator:
    """Return a numpy generator for one purpose."""
    return np.random.Generator(np.random.Philox(key=key_seed(seed, purpose, *integers)))


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Seed torch's generators for one micro-batch of one step, given its index in the global batch."""
    import torch

    key = key_seed(seed, "dropout", step, micro_batch)
    # torch.manual_seed stores a stack trace of every call with source lines, for devices that are not initialised yet.
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(key)
