"""Rule on the share of letters: drops tables of numbers and other data in files of code."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import LETTER, TextFile

# Code of these languages is mostly numbers and addresses; StarCoder2 exempts the two assemblies.
_EXEMPT = frozenset({"Motorola 68K Assembly", "WebAssembly", "Assembly", "LLVM", "SVG"})


def letter_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of letters among all characters below `min_letter_share`.

    For JSON and YAML the limit is `min_letter_share_of_data`.
    """
    if file.language in _EXEMPT:
        return None
    is_data = file.language in ("JSON", "YAML")
    wanted = (config.min_letter_share_of_data if is_data else config.min_letter_share) * file.num_chars
    num = file.count(LETTER)
    if num < wanted:
        num += sum(map(str.isalpha, file.beyond_ascii))
    return Rejection("letter_share", num / file.num_chars) if num < wanted else None
