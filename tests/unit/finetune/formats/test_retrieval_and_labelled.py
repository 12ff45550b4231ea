"""Readers of retrieval and labelling files take any bytes: what they cannot use is one line of error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from finetune.formats.labelled import (
    read_answers,
    read_clone_pairs,
    read_cloze,
    read_codes,
    read_labelled_texts,
)
from finetune.formats.retrieval import read_base, read_labelled_code, read_queries

READERS: list[Callable[[Path], Any]] = [
    read_base,
    lambda path: read_queries(path, 3),
    lambda path: read_labelled_code(path, "label", "code", "lang"),
    lambda path: read_labelled_texts(path, "func", "target", 2),
    read_codes,
    lambda path: read_clone_pairs(path, {"1": "a"}),
    read_cloze,
    lambda path: read_answers(path, ("max", "min")),
]
FIELDS = ["idx", "doc", "retrieval_idx", "label", "code", "lang", "func", "target", "nl_tokens", "pl_tokens"]
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.text(max_size=3), max_size=3)
)
RECORDS = st.lists(st.fixed_dictionaries({field: VALUES for field in FIELDS}), max_size=3)
CONTENTS = st.one_of(
    st.binary(max_size=200),
    RECORDS.map(lambda records: "\n".join(map(json.dumps, records)).encode()),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=3).map(lambda one: json.dumps(one).encode()),
)


@pytest.mark.parametrize("number", range(len(READERS)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENTS)
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path: Path, number: int, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    reported = ""
    try:
        READERS[number](path)
    except UserError as error:
        reported = str(error)
    assert "\n" not in reported


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    half = "\ud800"
    contents: list[tuple[int, Any]] = [
        (0, {half: 0}),
        (1, [{"idx": 1, "doc": half, "retrieval_idx": 0}]),
        (2, [{"label": 1, "code": half, "lang": "c"}]),
        (3, [{"func": half, "target": 0}]),
        (4, [{"idx": 1, "func": half}]),
        (6, [{"idx": 1, "nl_tokens": [half], "pl_tokens": ["<mask>"]}]),
    ]
    for number, content in contents:
        path = tmp_path / "file"
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match="half of a surrogate pair"):
            READERS[number](path)


@pytest.mark.parametrize("number", range(len(READERS)))
def test_missing_files_are_reported_by_name(tmp_path: Path, number: int) -> None:
    with pytest.raises(UserError, match="task file .*nowhere does not exist"):
        READERS[number](tmp_path / "nowhere")
