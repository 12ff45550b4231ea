"""Plain text that does not belong to code: word lists, logs, books."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def plain_text(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Plain text by another name than `plain_text_names`; the detail is the name."""
    if file.language != "Text" or config.plain_text_names is None:
        return None
    stem = file.name.partition(".")[0]
    # A name that only has to be held: requirements.txt, requirements-dev.txt, dev_requirements.txt.
    held = config.plain_text_names[:1]
    if stem in config.plain_text_names or any(name in file.name for name in held):
        return None
    return Rejection("plain_text", None, file.name)
