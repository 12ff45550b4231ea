"""Conversion of a byte-level BPE `tokenizer.json` to a tiktoken encoding, without downloads."""

import json
from pathlib import Path
from typing import Any


def _byte_of_char() -> dict[str, int]:
    """Return the byte of each printable character that byte-level BPE writes for it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def tiktoken_encoding(tokenizer: Path) -> Any:
    """Return an encoding whose ids are the tokenizer's, minus the number of special tokens before them."""
    from tiktoken import Encoding

    stored = json.loads(tokenizer.read_text())
    special = {token["content"] for token in stored["added_tokens"]}
    bytes_of = _byte_of_char()
    tokens = {
        bytes(bytes_of[char] for char in token): number
        for token, number in stored["model"]["vocab"].items()
        if token not in special
    }
    first = min(tokens.values())
    ranks = {token: number - first for token, number in tokens.items()}
    return Encoding(
        "same", pat_str=_pattern(stored["pre_tokenizer"]), mergeable_ranks=ranks, special_tokens={}
    )


def _pattern(pre_tokenizer: dict[str, Any]) -> str:
    """Return one pattern whose alternatives are the tokenizer's splits, which it applies one after the other.

    The result differs if one split's match could start inside another's: for a few tokens in a thousand.
    """
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    patterns = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    if not patterns:
        raise SystemExit("the tokenizer splits by no pattern of its own")
    return "|".join(patterns)
