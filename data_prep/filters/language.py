"""Languages that were asked for."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def language(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Files of an unknown language, or of one that is not among `languages`; the detail names it."""
    if file.language is not None and (config.languages is None or file.language in config.languages):
        return None
    return Rejection("language", None, file.language or "unknown")
