"""JSON that is made in pieces is the JSON of the whole."""

import json
from typing import Any

import pytest

from pipeline.editor.events import json_in_pieces

VALUES: list[Any] = [
    None,
    1.5,
    'a "€"\n\\',
    [],
    {},
    {"a": [{"b": 1}, [], None], "c\n": {"d": [0.1, True]}},
    {"many": [{f"t{number}": -number / 7} for number in range(1000)], "names": ["é"] * 300},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_pieces_are_the_whole(value: Any) -> None:
    assert json_in_pieces(value) == json.dumps(value, separators=(",", ":"))
