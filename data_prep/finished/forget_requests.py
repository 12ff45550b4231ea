"""Requests of repositories' owners to remove their files: a list that every later preparation observes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import ValidationError, model_validator

from cluster.config import Config
from cluster.errors import UserError
from cluster.storage import read_document, write_document

FORGOTTEN_NAME = "forgotten.json"
FORGOTTEN_RULE = "forgotten"
_ADVICE = "it lists the files to forget; restore it from a copy"


class ForgetRequest(Config):
    """Either a repository by its exact name, or files by a shell pattern on PATH or REPOSITORY/PATH, in which "*"
    also matches slashes."""

    repository: str | None = None
    path: str | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> "ForgetRequest":
        if (self.repository is None) == (self.path is None) or "" in (self.repository, self.path):
            raise ValueError("give either a repository or a path pattern")
        return self

    def __str__(self) -> str:
        return f"repository {self.repository}" if self.repository is not None else f"path {self.path}"


class _Requests(Config):
    format: Literal[1] = 1
    requests: tuple[ForgetRequest, ...]


@dataclass(frozen=True)
class ForgetRequests:
    """A list of requests; the first that matches a file is the reason for its removal."""

    requests: tuple[ForgetRequest, ...] = ()

    def match(self, repositories: Iterable[str], paths: Iterable[str]) -> list[str | None]:
        """Return for every file the request that matches it, as text; None for a file that stays."""
        if not self.requests:
            return [None for _ in repositories]
        found: list[str | None] = []
        by_path = self._path_patterns
        by_repository = self._repositories
        for repository, path in zip(repositories, paths, strict=True):
            reason = by_repository.get(repository)
            if reason is None:
                full_path = f"{repository}/{path}"
                reason = next((why for why, of in by_path if of.match(path) or of.match(full_path)), None)
            found.append(reason)
        return found

    @cached_property
    def _repositories(self) -> dict[str, str]:
        return {r.repository: str(r) for r in self.requests if r.repository is not None}

    @cached_property
    def _path_patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        return [(str(r), re.compile(translate(r.path))) for r in self.requests if r.path is not None]


def read_requests(folder: Path) -> tuple[ForgetRequest, ...]:
    """Return the requests recorded in `folder`, empty if there is no list. UserError when the list is damaged."""
    path = folder / FORGOTTEN_NAME
    if not path.is_file():
        return ()
    try:
        return _Requests.model_validate(read_document(path, _ADVICE)).requests
    except ValidationError as error:
        raise UserError(f"{path} is damaged ({error.errors()[0]['msg']}): {_ADVICE}") from error


def record_request(folder: Path, request: ForgetRequest) -> tuple[ForgetRequest, ...]:
    """Add a request to the list of `folder` unless it is there; return the complete list."""
    requests = read_requests(folder)
    if request not in requests:
        requests = (*requests, request)
        write_requests(folder, requests)
    return requests


def write_requests(folder: Path, requests: Sequence[ForgetRequest]) -> None:
    """Replace the list of `folder`."""
    write_document(folder / FORGOTTEN_NAME, _Requests(requests=tuple(requests)).model_dump(exclude_none=True))
