"""Line-aligned files, as CodeXGLUE publishes translation and repair: line i of one belongs to line i of the other."""

from pathlib import Path

from cluster.errors import UserError
from finetune.formats.files import read_text


def read_lines(path: Path) -> list[str]:
    """The lines without white space at their ends; only a line feed ends a line.

    Code holds other characters that `str.splitlines` would break at (form feeds, U+2028). UserError when the file is
    missing, no UTF-8 or has no line.
    """
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not any(line.strip() for line in lines):
        raise UserError(f"task file {path} is empty: it must have one text per line")
    return [line.strip() for line in lines]


def read_parallel(source: Path, target: Path) -> list[tuple[str, str]]:
    """Pairs of lines. UserError when the files have different numbers of lines."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources)} lines but {target} has {len(targets)}: "
            "line i of one must belong to line i of the other"
        )
    return list(zip(sources, targets, strict=True))
