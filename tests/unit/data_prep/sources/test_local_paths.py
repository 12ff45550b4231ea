"""Which places of a corpus all nodes of a cluster must see."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from data_prep.sources.config import SourceConfig, local_paths


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ({"kind": "installed_python"}, []),
        ({"kind": "directory", "path": "/data/code"}, ["/data/code"]),
        ({"kind": "git", "path": ["/data/a.git", "/data/b.git"]}, ["/data/a.git", "/data/b.git"]),
        (
            {"kind": "jsonl", "urls": ["s3://bucket/a.jsonl", "/data/b.jsonl", "/data/*.jsonl"]},
            ["/data/b.jsonl"],
        ),
        (
            {
                "kind": "mixture",
                "parts": {
                    "one": {"kind": "directory", "path": "/one"},
                    "two": {"kind": "directory", "path": "/two"},
                },
            },
            ["/one", "/two"],
        ),
    ],
)
def test_local_places_are_found_in_every_kind_of_source(source: dict[str, object], paths: list[str]) -> None:
    config: SourceConfig = TypeAdapter(SourceConfig).validate_python(source)
    assert local_paths(config) == [Path(path) for path in paths]
