"""Which repositories are held out."""

from collections.abc import Mapping

from cluster.errors import UserError
from data_prep.config import SplitConfig
from data_prep.ordering import keyed_hash

# A repository that would overfill its split by more than this is passed over for a smaller one.
_MAX_FILL = 1.10
MIN_REPOSITORIES = 3


def split_repositories(num_bytes_of: Mapping[str, int], config: SplitConfig) -> dict[str, str]:
    """Repository name to "train", "validation" or "test"; a repository is never divided.

    In keyed-hash order repositories fill test, then validation, up to their share of the bytes; the rest
    is train. Each split gets at least one. UserError with fewer than three repositories.
    """
    if len(num_bytes_of) < MIN_REPOSITORIES:
        names = ", ".join(sorted(num_bytes_of))
        raise UserError(
            f"the corpus has {len(num_bytes_of)} repositories with usable files ({names}): "
            f"train, validation and test need at least {MIN_REPOSITORIES}; add source trees"
        )
    order = sorted(num_bytes_of, key=lambda name: keyed_hash(config.seed, "split", name))
    total_bytes = sum(num_bytes_of.values())
    split_of = dict.fromkeys(num_bytes_of, "train")
    for split, share, num_left_over in (
        ("test", config.test_share, 2),
        ("validation", config.validation_share, 1),
    ):
        free = [name for name in order if split_of[name] == "train"]
        for name in _fill(free[:], num_bytes_of, share * total_bytes)[: len(free) - num_left_over]:
            split_of[name] = split
    return split_of


def _fill(order: list[str], num_bytes_of: Mapping[str, int], target_bytes: float) -> list[str]:
    """The names that fill `target_bytes`; the smallest one when none fits."""
    chosen: list[str] = []
    filled_bytes = 0
    for name in order:
        if filled_bytes >= target_bytes:
            break
        if filled_bytes + num_bytes_of[name] <= target_bytes * _MAX_FILL:
            chosen.append(name)
            filled_bytes += num_bytes_of[name]
    return chosen or [min(order, key=lambda name: (num_bytes_of[name], name))]
