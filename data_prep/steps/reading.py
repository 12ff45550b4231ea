"""Reading of one work unit: decoding, filter rules, redaction, signatures; files that crash a worker are left out."""

import gc
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from cluster.errors import first_line
from cluster.storage import sha256_bytes
from data_prep.corpus.text_store import ReadFile, write_part
from data_prep.decontamination.index import ContaminationIndex, load_index
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.signatures import signatures
from data_prep.documents import RawFile, Rejection, document_id
from data_prep.filters.registry import first_rejection
from data_prep.repository_order.imports import imports_of
from data_prep.secrets.redact import redact
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import read_unit
from data_prep.sources.units import WorkUnit
from data_prep.steps.reading_config import ReadingConfig
from data_prep.text.decoding import DecodedText, DecodingConfig, decode
from data_prep.text.file import TextFile
from data_prep.text.language_aliases import canonical_language
from data_prep.text.languages import detect_language
from data_prep.text.licences import (
    UNKNOWN_LICENCE,
    declared_licence,
    header_licence,
    is_licence_file,
    licence_of_file,
)

MAX_CRASHES = 3
_NOTHING = -1
_HEAD_BYTES = 64


class CrashGuard:
    """Records beside a task's output which item is in work, so that the next attempt knows which one crashed it.

    An item that crashed MAX_CRASHES attempts is skipped from then on, in later runs, too. Before that, only crashes
    within one run (`run_id`) count: killing a driver kills its workers as well, which is no fault of the file. Used as
    a context manager; leaving it without a crash removes the record.
    """

    def __init__(self, output: Path, run_id: str) -> None:
        self._path = output.with_name(f".{output.name}.at")
        self._run_id = run_id
        self._num_crashes = self._read()

    def __enter__(self) -> "CrashGuard":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        counts = " ".join(f"{item}:{count}" for item, count in sorted(self._num_crashes.items()))
        self._path.write_text(self._head(_NOTHING) + counts)
        self._descriptor = os.open(self._path, os.O_WRONLY)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    def begin(self, item: int) -> bool:
        """Record that work on `item` begins. Return False if it has crashed its worker too often to be retried."""
        if self._num_crashes.get(item, 0) >= MAX_CRASHES:
            return False
        self._record(item)
        return True

    def end(self) -> None:
        """Record that work on the item is done: it is not the cause of a later crash."""
        self._record(_NOTHING)

    def _record(self, item: int) -> None:
        # The page cache outlives the process, so there is no fsync; the width is fixed, to overwrite the last record.
        os.pwrite(self._descriptor, self._head(item).encode(), 0)

    def _head(self, item: int) -> str:
        return f"{self._run_id} {item}".ljust(_HEAD_BYTES - 1) + "\n"

    def _read(self) -> dict[int, int]:
        """Return crashes by item, including that of the last attempt."""
        try:
            text = self._path.read_text()
            run_id, item = text[:_HEAD_BYTES].split()
            pairs = [entry.split(":") for entry in text[_HEAD_BYTES:].split()]
            counts = {int(number): int(count) for number, count in pairs}
            current = int(item)
        except (OSError, ValueError):  # ValueError: half-written, or not text
            return {}
        if run_id != self._run_id:
            return {number: count for number, count in counts.items() if count >= MAX_CRASHES}
        if current != _NOTHING:
            counts[current] = counts.get(current, 0) + 1
        return counts


UNKNOWN_LANGUAGE = "unknown"
# Files per batch of signatures: enough that numpy's calls cost little, few enough that texts take little memory.
_BATCH_FILES = 64
_BATCH_TEXT_BYTES = 2 << 20
_GC_THRESHOLD = 200_000


def read_unit_task(
    unit: WorkUnit, config: ReadingConfig, index_path: Path | None, run_id: str, output: Path
) -> None:
    """Task: read every file of the unit and write the results, in order, to `output`."""
    # Most objects live as long as their file; frequent garbage collection is a quarter of the time of parsing.
    gc.set_threshold(_GC_THRESHOLD)
    index = None if index_path is None else load_index(index_path)
    limits = ReadLimits(config.filters.min_file_bytes, config.filters.max_file_bytes)
    with CrashGuard(output, run_id) as guard:
        raw = read_unit(unit, limits)
        read = (_read_guarded(number, file, unit.source, config, guard) for number, file in enumerate(raw))
        write_part(output, _add_signatures(read, config.near_duplicates, index))


def read_file(raw: RawFile, source: str, config: ReadingConfig) -> ReadFile:
    """Return the file's text, or the first rule that drops it; without a signature."""
    row = ReadFile(
        id=document_id(source, raw.repository, raw.path, raw.location),
        repository=raw.repository,
        path=raw.path,
        location=raw.location,
        num_bytes=raw.num_bytes,
        language=UNKNOWN_LANGUAGE,
        licence=declared_licence(raw.licence),
        stars=raw.stars,
    )
    decoded = _text_of(raw, config.decoding)
    if isinstance(decoded, Rejection):
        # By its name only, so that files without text are counted under their language, too.
        row.language = _language(raw, b"") or UNKNOWN_LANGUAGE
        row.repository_licence = _licence_of_dropped(raw, config.decoding)
        return row.drop(decoded)
    text = decoded.data
    language = _language(raw, text)
    row.language = language or UNKNOWN_LANGUAGE
    if row.licence in (None, UNKNOWN_LICENCE):
        row.licence = header_licence(text) or row.licence
    row.repository_licence = licence_of_file(raw.path, text)
    row.flags = " ".join(decoded.flags) or None
    rejection = first_rejection(TextFile(text, raw.path, language), config.filters)
    if rejection is None and config.secrets.enabled:
        redacted = redact(text, raw.path, config.secrets.kinds)
        text = redacted.data
        row.redactions = " ".join(f"{kind}:{count}" for kind, count in redacted.counts) or None
    row.num_text_bytes = len(text)
    row.sha256 = sha256_bytes(text)
    if rejection is not None:
        return row.drop(rejection)
    row.text = text
    if config.wants_imports:
        row.imports = imports_of(row.language, text)
    return row


def _text_of(raw: RawFile, config: DecodingConfig) -> DecodedText | Rejection:
    if raw.data is None or raw.rejection is not None:
        return raw.rejection or Rejection("readable")
    return decode(raw.data, raw.path, config)


def _licence_of_dropped(raw: RawFile, config: DecodingConfig) -> str | None:
    """Return the licence in a licence file that is dropped; it still applies to its repository."""
    if raw.data is None or not is_licence_file(raw.path):
        return None
    decoded = decode(raw.data, raw.path, config)
    return licence_of_file(raw.path, raw.data if isinstance(decoded, Rejection) else decoded.data)


def _language(raw: RawFile, text: bytes) -> str | None:
    """Return the language that the source declares, if it is known, else the detected one."""
    declared = None if raw.language is None else canonical_language(raw.language)
    return declared or detect_language(raw.path, text)


def _read_guarded(
    number: int, raw: RawFile, source: str, config: ReadingConfig, guard: CrashGuard
) -> ReadFile:
    """Return `read_file` of the file, rejected by rule `crash` if it repeatedly kills its worker or raises an error."""
    if not guard.begin(number):
        crashed = Rejection("crash", float(MAX_CRASHES), "its worker died of it")
        return read_file(replace(raw, data=None, rejection=crashed), source, config)
    try:
        return read_file(raw, source, config)
    except Exception as error:  # an error in a parser must not stop the reading of other files
        reason = Rejection("crash", None, f"{type(error).__name__}: {first_line(error)}")
        return read_file(replace(raw, data=None, rejection=reason), source, config)
    finally:
        guard.end()


def _add_signatures(
    files: Iterator[ReadFile], config: NearDuplicatesConfig, index: ContaminationIndex | None
) -> Iterator[ReadFile]:
    """Yield the files with their MinHash band keys, and drop those that contain items of an evaluation set."""
    if not config.enabled and index is None:
        yield from files
        return
    for batch in _batches(files):
        texts = [file.text or b"" for file in batch]
        for file, signature in zip(batch, signatures(texts, config, index), strict=True):
            if file.text is not None:
                file.bands = signature.bands
                if signature.rejection is not None:
                    file.drop(signature.rejection)
            yield file


def _batches(files: Iterable[ReadFile]) -> Iterator[list[ReadFile]]:
    batch: list[ReadFile] = []
    num_bytes = 0
    for file in files:
        batch.append(file)
        num_bytes += len(file.text or b"")
        if len(batch) == _BATCH_FILES or num_bytes >= _BATCH_TEXT_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch
