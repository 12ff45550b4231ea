"""Orders that look random and are the same everywhere."""

from cluster.storage import sha256_bytes


def keyed_hash(seed: int, purpose: str, name: str) -> str:
    """A hex string to sort `name` by; a pure function of its arguments."""
    return sha256_bytes(f"{seed}\0{purpose}\0{name}".encode())
