"""Reading of one work unit: decoding, filter rules, redaction, signatures."""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cluster.errors import first_line
from cluster.storage import sha256_bytes
from data_prep.crash_guard import MAX_CRASHES, CrashGuard
from data_prep.decontamination.index import ContaminationIndex, load_index
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.signatures import signatures
from data_prep.documents import RawFile, Rejection, document_id
from data_prep.filters.registry import first_rejection
from data_prep.reading_config import ReadingConfig
from data_prep.repository_order.imports import imports_of
from data_prep.secrets.redact import redact
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import read_unit
from data_prep.sources.units import WorkUnit
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
from data_prep.text_store import ReadFile, write_part

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
