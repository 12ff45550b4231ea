"""Possessive groups match wrongly before Python 3.11.5 (CPython issue 106052), and we run on 3.11.2."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:\*|\+|\?|\{\d*,?\d*\})\+|\(\?>")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_PACKAGES = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")


@pytest.mark.parametrize("package", _PACKAGES)
def test_no_pattern_repeats_a_group_possessively(package: str) -> None:
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted((_ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"\bb?r?b?[\"']", line) and _POSSESSIVE_GROUP.search(_CLASS.sub("[]", line))
    ]
    assert found == []
