"""Pseudo-random orders that are the same on every machine."""

from cluster.storage import sha256_bytes


def keyed_hash(seed: int, purpose: str, name: str) -> str:
    """Return a hex string to sort `name` by; a pure function of its arguments."""
    return sha256_bytes(f"{seed}\0{purpose}\0{name}".encode())
