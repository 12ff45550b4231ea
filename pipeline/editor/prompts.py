"""Prompts as texts, as token ids of the model, or as both mixed.

A text is read by its bytes, so ids are decoded and count as the text that they spell; ids of special tokens spell none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from data_prep.tokenizer import CodeTokenizer
from pipeline.editor.bodies import MAX_PROMPTS, BodyError, as_bytes, json_kind


@dataclass(frozen=True)
class Prompt:
    """The bytes of a prompt, and the characters that answers show of it."""

    data: bytes
    text: str


def prompt_of(value: Any, tokenizer: CodeTokenizer, name: str = "prompt") -> Prompt:
    """Return the prompt that a text, or a list of token ids and texts, stands for.

    Raises BodyError for anything else, and for ids that the tokenizer does not have.
    """
    if isinstance(value, str):
        return Prompt(as_bytes(value, name), value)
    if not isinstance(value, list):
        raise BodyError(400, f"{name}: give a text or a list of token ids, got {json_kind(value)}")
    pieces = []
    for kind, run in groupby(value, type):
        if kind is int:
            pieces.append(_decoded(list(run), tokenizer, name))
        elif kind is str:
            pieces.append(as_bytes("".join(run), name))
        else:
            raise BodyError(400, f"{name}: a list has token ids and texts, got {json_kind(next(run))}")
    data = b"".join(pieces)
    return Prompt(data, data.decode(errors="replace"))


def prompts_of(value: Any, tokenizer: CodeTokenizer) -> list[Prompt]:
    """Return the prompts of a request: one, or a list of them; a list that has an id itself is one prompt.

    Raises BodyError as `prompt_of`, and for none or too many.
    """
    if value is None or value == []:
        raise BodyError(400, "prompt: give a text, or a list of texts")
    if isinstance(value, str) or not isinstance(value, list) or any(type(one) is int for one in value):
        return [prompt_of(value, tokenizer)]
    if len(value) > MAX_PROMPTS:
        raise BodyError(400, f"prompt: {len(value)} prompts are too many, give at most {MAX_PROMPTS}")
    return [prompt_of(one, tokenizer, f"prompt.{number}") for number, one in enumerate(value)]


def _decoded(ids: Sequence[int], tokenizer: CodeTokenizer, name: str) -> bytes:
    for one in (min(ids), max(ids)):
        if not 0 <= one < tokenizer.vocab_size:
            shown = str(one) if abs(one) < 1 << 64 else "a number of more than 64 bits"
            raise BodyError(400, f"{name}: the model has tokens 0 to {tokenizer.vocab_size - 1}, got {shown}")
    return tokenizer.decode_bytes(ids)
