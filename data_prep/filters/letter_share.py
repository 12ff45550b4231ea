"""Share of letters: tables of numbers and other data that call themselves code."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import LETTER, TextFile

# Code of these is mostly numbers and addresses; StarCoder2 spares the two assemblies.
_SPARED = frozenset({"Motorola 68K Assembly", "WebAssembly", "Assembly", "LLVM", "SVG"})


def letter_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """The share of letters among all characters when it is below `min_letter_share` (for JSON and YAML
    `min_letter_share_of_data`)."""
    if file.language in _SPARED:
        return None
    is_data = file.language in ("JSON", "YAML")
    wanted = (config.min_letter_share_of_data if is_data else config.min_letter_share) * file.num_chars
    num = file.count(LETTER)
    if num < wanted:
        num += sum(map(str.isalpha, file.beyond_ascii))
    return Rejection("letter_share", num / file.num_chars) if num < wanted else None
