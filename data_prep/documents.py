"""What a file is called on its way from the source to a document in a shard."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from cluster.storage import sha256_bytes

SPLITS = ("train", "validation", "test")

# Their ids are their positions here.
SPECIAL_TOKENS = (
    "<pad>",
    "<eod>",
    "<repo>",
    "<path>",
    "<language>",
    "<sep>",
    "<hole>",
    "<end_hole>",
    "<mask>",
)

_LANGUAGE_OF_SUFFIX = {
    ".c": "C",
    ".cc": "C++",
    ".cpp": "C++",
    ".go": "Go",
    ".h": "C",
    ".hpp": "C++",
    ".java": "Java",
    ".js": "JavaScript",
    ".md": "Markdown",
    ".py": "Python",
    ".pyi": "Python",
    ".rs": "Rust",
    ".sh": "Shell",
    ".ts": "TypeScript",
}


@dataclass(frozen=True)
class SourceFile:
    """A file a source offers. `repository` and `path` are the same on every machine; `absolute` is not."""

    source: str
    repository: str
    path: str
    absolute: str
    num_bytes: int
    mtime_ns: int
    licence: str | None

    @property
    def language(self) -> str:
        """By the file's suffix; "other" where the suffix is not known."""
        return _LANGUAGE_OF_SUFFIX.get(PurePosixPath(self.path).suffix.lower(), "other")

    @property
    def document_id(self) -> str:
        """16 hex digits that stand for (source, repository, path)."""
        return sha256_bytes("\0".join((self.source, self.repository, self.path)).encode())[:16]


@dataclass(frozen=True)
class DocumentMeta:
    """What is known of one document in a block. `sha256` and `num_bytes` are of its UTF-8 text."""

    id: str
    source: str
    repository: str
    path: str
    language: str
    licence: str | None
    sha256: str
    num_bytes: int
