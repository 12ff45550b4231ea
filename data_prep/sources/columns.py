"""Columns of records: the published ones of known datasets, and checks that those named by the user exist."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from cluster.errors import UserError
from data_prep.sources.config import ColumnsConfig, Preset
from data_prep.sources.records import column_value

# A dataset that was published in several forms has several mappings: the first whose content column a file has is
# used. Names are those of the dataset cards (huggingface.co/datasets/...).
PRESETS: dict[Preset, tuple[ColumnsConfig, ...]] = {
    # bigcode/the-stack, the-stack-dedup
    "the_stack_v1": (
        ColumnsConfig(
            content="content",
            repository="max_stars_repo_name",
            path="max_stars_repo_path",
            language="lang",
            licence="max_stars_repo_licenses",
            stars="max_stars_count",
        ),
    ),
    # bigcode/the-stack-v2: one file per row; the-stack-v2-train-*: one repository per row, its files in
    # `files`. Both are published without `content`, which the user adds from Software Heritage.
    "the_stack_v2": (
        ColumnsConfig(
            content="content",
            repository="repo_name",
            path="path",
            language="language",
            licence="detected_licenses",
            stars="star_events_count",
            files="files",
        ),
    ),
    # The original JSONL, then code-search-net/code_search_net.
    "codesearchnet": (
        ColumnsConfig(content="original_string", repository="repo", path="path", language="language"),
        ColumnsConfig(
            content="whole_func_string",
            repository="repository_name",
            path="func_path_in_repository",
            language="language",
        ),
    ),
    # bigcode/starcoderdata; its language is the name of the folder only.
    "starcoderdata": (
        ColumnsConfig(
            content="content",
            repository="max_stars_repo_name",
            path="max_stars_repo_path",
            stars="max_stars_count",
        ),
    ),
}


def column_mappings(preset: Preset | None, columns: ColumnsConfig | None) -> tuple[ColumnsConfig, ...]:
    """Return the column mappings of a table source."""
    if preset is not None:
        return PRESETS[preset]
    return (columns or ColumnsConfig(repository="repository", path="path", language="language"),)


_MAX_SHOWN_COLUMNS = 20
_USUAL_CONTENTS = (
    "text",
    "code",
    "source",
    "source_code",
    "body",
    "func",
    "original_string",
    "whole_func_string",
)


def no_content_message(wanted: Iterable[str], names: Collection[str]) -> str:
    """Return the error message for a file without a column of code; `names` are the columns that it has."""
    usual = next((name for name in _USUAL_CONTENTS if name in names), "NAME")
    return (
        f"no column {' or '.join(sorted(wanted))} among {_format_names(names)}: name the column of the code with "
        f"`columns: {{content: {usual}}}` (prep.source.columns.content={usual}), or give the dataset's `preset`"
    )


def content_columns(mappings: Iterable[ColumnsConfig]) -> set[str]:
    """Return the columns of code or of lists of files; a file must have one of them."""
    return {name for columns in mappings for name in (columns.content, columns.files) if name is not None}


def refuse_without_content(
    records: Iterable[Mapping[str, Any]], mappings: Iterable[ColumnsConfig], where: str
) -> None:
    """Raise UserError, which names `where`, if there are records and none has a column of code.

    Consumes no more records than needed.
    """
    wanted, seen = content_columns(mappings), set[str]()
    for record in records:
        if any(_has(record, name) for name in wanted):
            return
        seen.update(map(str, record))
    if seen:
        raise UserError(f"{where}: {no_content_message(wanted, seen)}")


def refuse_missing_columns(records: Iterable[Mapping[str, Any]], columns: ColumnsConfig, where: str) -> None:
    """Raise UserError, which names `where`, if there are records and one of `columns` is in none of them.

    Consumes no more records than needed. A null counts as present, with all columns below it.
    """
    missing = {str(name) for name in columns.model_dump().values() if name is not None}
    seen: set[str] = set()
    num_records = 0
    for record in records:
        num_records += 1
        listed = column_value(record, columns.files)
        # The files that a record lists have their own columns.
        files = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        holders = (record, *files)
        missing = {name for name in missing if not any(_has(holder, name) for holder in holders)}
        if not missing:
            return
        seen.update(name for holder in holders for name in holder)
    if num_records:
        span = "record" if num_records == 1 else f"{num_records:,} records"
        raise UserError(
            f"{where}: no column {' and '.join(sorted(missing))} among {_format_names(seen)} in its first "
            f"{span}: check `columns`, or make the file a separate source without them"
        )


def _has(record: Mapping[str, Any], column: str) -> bool:
    if column in record:
        return True
    value: Any = record
    for name in column.split("."):
        if value is None:
            return True
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True


def _format_names(columns: Collection[str]) -> str:
    names = sorted(columns)
    return ", ".join(names[:_MAX_SHOWN_COLUMNS]) + (", ..." if len(names) > _MAX_SHOWN_COLUMNS else "")
