"""Rule on plain text that does not belong to code: word lists, logs, books."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def plain_text(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject plain text whose name is not in `plain_text_names`; the detail is the name."""
    if file.language != "Text" or config.plain_text_names is None:
        return None
    stem = file.name.partition(".")[0]
    # The first name only has to be contained: requirements.txt, requirements-dev.txt, dev_requirements.txt.
    contained = config.plain_text_names[:1]
    if stem in config.plain_text_names or any(name in file.name for name in contained):
        return None
    return Rejection("plain_text", None, file.name)
