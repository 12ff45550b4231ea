"""The commands that the pages print, taken out of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
RECIPES = tuple(
    sorted(f"pipeline/recipes/{path.name}" for path in (ROOT / "pipeline/recipes").glob("*.yaml"))
)

_PROGRAM = re.compile(r"(permcode|make|pip|ray|curl|export|\. \.venv/\S+|\.venv/bin/[\w-]+) \S")
_SHELLS = ("", "sh", "bash", "console")
_FENCE = re.compile(r"```(\w*)\s*$")
_COMMENT = re.compile(r"(?<!\S)#.*$")


@dataclass(frozen=True)
class Printed:
    """A command as it is read by whoever copies it: without its comment, lines that go on joined."""

    page: str
    line: int
    text: str


def printed_commands(page: str) -> list[Printed]:
    """In the order of the page: lines of code blocks, and `code` within sentences that has arguments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page in RECIPES:
        head = re.match(r"(?:#.*\n)*", text)
        assert head is not None
        text = re.sub(r"^# ?", "", head[0], flags=re.MULTILINE)
    found = [*_in_blocks(page, text), *_in_sentences(page, text)]
    return sorted(found, key=lambda one: one.line)


def _in_blocks(page: str, text: str) -> Iterator[Printed]:
    fence: str | None = None
    lines = iter(enumerate(text.split("\n"), start=1))
    for number, line in lines:
        if opened := _FENCE.match(line):
            fence = opened[1] if fence is None else None
            continue
        if not (line.startswith("    ") if fence is None else fence in _SHELLS):
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines)[1].strip()
        command = " ".join(_COMMENT.sub("", line).split())
        if _PROGRAM.match(command):
            yield Printed(page, number, command)


def _in_sentences(page: str, text: str) -> Iterator[Printed]:
    # Code blocks keep their lines, so that numbers stay right.
    prose = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
    prose = re.sub(r"^    .*$", "", prose, flags=re.MULTILINE)
    for code in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        command = " ".join(code[1].split())
        # `permcode finetune --from` names a command, it is none to give.
        is_name = command.startswith("permcode ") and len(command.split()) <= 3
        if _PROGRAM.match(command) and not is_name:
            yield Printed(page, prose.count("\n", 0, code.start()) + 1, command)
