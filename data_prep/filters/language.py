"""Rule on languages: keeps the configured ones."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def language(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject files of an unknown language or one that is not in `languages`; the detail names it."""
    if file.language is not None and (config.languages is None or file.language in config.languages):
        return None
    return Rejection("language", None, file.language or "unknown")
