"""A byte-level BPE `tokenizer.json` as a tiktoken encoding: nothing is fetched."""

import json
from pathlib import Path
from typing import Any


def _byte_of_char() -> dict[str, int]:
    """Byte-level BPE writes every byte as a printable character; this is the way back."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def tiktoken_encoding(tokenizer: Path) -> Any:
    """The encoding whose ids are the tokenizer's, less the special tokens that stand before them."""
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
    """The tokenizer's splits, made one after the other, as the alternatives of one pattern.

    Not the same where one split's match could have begun in another's: a few tokens in a thousand.
    """
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    patterns = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    if not patterns:
        raise SystemExit("the tokenizer splits by no pattern of its own")
    return "|".join(patterns)
