"""Readers of texts with labels: Devign's functions, BigCloneBench's pairs, CodeXGLUE's cloze tests."""

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from finetune.formats.files import read_text
from finetune.formats.records import read_records

MASK = "<mask>"
_SPLIT = "<CODESPLIT>"


@dataclass(frozen=True)
class ClozeItem:
    """A text with one `<mask>` in place of the hidden word."""

    key: str
    text: str
    code: str
    """The part of the text that is code."""


def read_labelled_texts(path: Path, text: str, label: str, num_labels: int) -> list[tuple[str, int]]:
    """Return (text, label number) of every record. Raise UserError if a label is not in 0 to `num_labels` - 1."""
    found = []
    for number, record in enumerate(read_records(path, (text, label)), start=1):
        if not isinstance(record[text], str) or not record[text].strip():
            raise UserError(f"{path} record {number}: {text!r} must be a text that is not empty")
        check_characters(record[text], f"{path} record {number}")
        found.append((record[text], _label(record[label], num_labels, f"{path} record {number}")))
    return found


def read_codes(path: Path) -> dict[str, str]:
    """Return BigCloneBench's functions by `idx`. Raise UserError if two functions have the same `idx`."""
    codes: dict[str, str] = {}
    for number, record in enumerate(read_records(path, ("idx", "func")), start=1):
        key, code = str(record["idx"]), record["func"]
        if not isinstance(code, str):
            raise UserError(f"{path} record {number}: 'func' must be a text, not {type(code).__name__}")
        check_characters(code, f"{path} record {number}")
        if codes.setdefault(key, code) != code:
            raise UserError(f"{path} record {number}: idx {key} already stands for another function")
    return codes


def read_clone_pairs(path: Path, codes: dict[str, str]) -> list[tuple[str, str, int]]:
    """Return (idx, idx, label) of every line "IDX IDX LABEL".

    Raise UserError if a line has another form, or an idx or a label is unknown.
    """
    pairs = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        fields, where = line.split(), f"{path} line {number}"
        if len(fields) != 3:
            raise UserError(f"{where} has {len(fields)} fields, not 3: IDX IDX LABEL")
        unknown = [key for key in fields[:2] if key not in codes]
        if unknown:
            raise UserError(f"{where}: no function has idx {unknown[0]}: is it another set's file?")
        label = int(fields[2]) if fields[2] in ("0", "1") else fields[2]
        pairs.append((fields[0], fields[1], _label(label, 2, where)))
    if not pairs:
        raise UserError(f"{path} is empty: it must have a pair per line")
    return pairs


def read_cloze(path: Path) -> list[ClozeItem]:
    """Return the items of a CodeXGLUE cloze file: documentation, then code, as tokens joined by single spaces.

    Raise UserError if an item does not have exactly one `<mask>`, or its idx is a duplicate.
    """
    items: list[ClozeItem] = []
    number_of: dict[str, int] = {}
    for number, record in enumerate(read_records(path, ("idx", "nl_tokens", "pl_tokens")), start=1):
        tokens = [record["nl_tokens"], record["pl_tokens"]]
        if not all(isinstance(one, list) and all(isinstance(token, str) for token in one) for one in tokens):
            raise UserError(f"{path} item {number}: nl_tokens and pl_tokens must be lists of texts")
        text = " ".join(tokens[0] + tokens[1])
        check_characters(text, f"{path} item {number}")
        if text.count(MASK) != 1:
            raise UserError(f"{path} item {number} has {text.count(MASK)} times {MASK}: it must have one")
        key = str(record["idx"])
        if key in number_of:
            raise UserError(
                f"{path} item {number} has the idx {key!r} of item {number_of[key]}: give each its own"
            )
        number_of[key] = number
        items.append(ClozeItem(key, text, " ".join(tokens[1])))
    return items


def read_answers(path: Path, words: tuple[str, ...]) -> dict[str, int]:
    """Return the number of each item's answer in `words`, by idx, from lines `IDX<CODESPLIT>WORD`.

    Raise UserError if a line has another form, or an item has a second answer.
    """
    answers: dict[str, int] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        key, _, word = line.strip().partition(_SPLIT)
        if word not in words:
            raise UserError(
                f"{path} line {number} must be IDX{_SPLIT}WORD with a word of {', '.join(words)}, not {line!r:.60}"
            )
        if key in answers:
            raise UserError(f"{path} line {number} answers the item {key!r} again: leave one answer")
        answers[key] = words.index(word)
    return answers


def check_characters(text: str, where: str) -> None:
    """Raise UserError if the text cannot be encoded: JSON can contain half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where} holds half of a surrogate pair, which is no character") from None


def _label(value: object, num_labels: int, where: str) -> int:
    # JSON's true is not a label; 1.0 is, because tables store whole numbers as floats.
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in range(num_labels):
        raise UserError(f"{where}: the label is {value!r}, but labels are 0 to {num_labels - 1}")
    return int(value)
