"""Records of a file on its way from the source to a document in a shard."""

from dataclasses import dataclass

from cluster.storage import sha256_bytes

SPLITS = ("train", "validation", "test")
NUM_RESERVED_TOKENS = 64

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
    *(f"<reserved_{number}>" for number in range(NUM_RESERVED_TOKENS)),
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a file is dropped: the rule's name, the measured value, and a detail that helps to understand it."""

    rule: str
    value: float | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as read from a source: its bytes, or the `rejection` that says why there are none.

    A licence file may have both: it is dropped, but its licence is read. `repository` and `path` are printable and the
    same on every machine. `location` distinguishes files that share both: the place in a container
    ("data.jsonl.gz#17", "lib-1.0.zip!lib/a.py"); empty for a plain file. `num_bytes` is the file's size in the source.
    Language (named as in `text.languages`), licence and stars are those that the source declares, None if it does not.
    """

    repository: str
    path: str
    location: str
    num_bytes: int
    data: bytes | None = None
    rejection: Rejection | None = None
    language: str | None = None
    licence: str | None = None
    stars: int | None = None


def document_id(source: str, repository: str, path: str, location: str) -> str:
    """Return 16 hex digits that identify one file of one source."""
    return sha256_bytes("\0".join((source, repository, path, location)).encode())[:16]


@dataclass(frozen=True)
class DocumentMeta:
    """Metadata of one document in a block.

    `sha256` and `num_bytes` are those of its text in UTF-8, as stored in the block; `location` is that of its
    `RawFile`.
    """

    id: str
    source: str
    repository: str
    path: str
    language: str
    licence: str | None
    sha256: str
    num_bytes: int
    location: str = ""
    stars: int | None = None
