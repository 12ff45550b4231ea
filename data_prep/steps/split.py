"""The split of repositories, or of single files, into train, validation and test."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.config import SplitConfig
from data_prep.corpus.decisions import Decisions
from data_prep.corpus.rows import Corpus
from data_prep.documents import SPLITS
from data_prep.pseudo_random import keyed_hash

# A repository that would overfill its split by more than this is skipped for a smaller one.
_MAX_FILL = 1.10
MIN_REPOSITORIES = 3


def split_repositories(num_bytes_of: Mapping[str, int], config: SplitConfig) -> dict[str, str]:
    """Map the name of each repository (or file, with `config.by`) to "train", "validation" or "test".

    In keyed-hash order they fill test, then validation, up to their share of the bytes; the rest is train. Each split
    gets at least one. UserError with fewer than three.
    """
    if len(num_bytes_of) < MIN_REPOSITORIES:
        names = ", ".join(sorted(num_bytes_of))
        advice = "add source trees" if config.by == "file" else "add source trees, or give prep.split.by=file"
        what = "files" if config.by == "file" else "repositories with usable files"
        raise UserError(
            f"too few {what} in the corpus ({len(num_bytes_of)}: {names}): "
            f"train, validation and test need at least {MIN_REPOSITORIES}; {advice}"
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


def split_corpus(corpus: Corpus, decisions: Decisions, config: SplitConfig) -> dict[str, NDArray[np.int64]]:
    """Return the kept rows of each split, in the corpus's order.

    UserError when nothing was kept, or there are too few repositories for three splits.
    """
    kept = decisions.kept()
    if not len(kept):
        counts = Counter(rule for rule in decisions.rule.tolist() if rule is not None).most_common()
        by_rule = ", ".join(f"{rule} {count}" for rule, count in counts)
        raise UserError(
            f"no usable file: all {len(corpus)} files of the corpus were dropped ({by_rule}); "
            "relax the rule that drops most (`prep.filters`, `prep.licences`) or point `prep.source` at another corpus"
        )
    names = corpus.strings("repository")
    if config.by == "file":
        names = names + "/" + corpus.strings("path") + "#" + corpus.strings("location")
    sizes_bytes = corpus.integers("num_text_bytes")
    num_bytes_of: dict[str, int] = {}
    for row in kept.tolist():
        num_bytes_of[names[row]] = num_bytes_of.get(names[row], 0) + int(sizes_bytes[row])
    split_of = split_repositories(num_bytes_of, config)
    splits = np.array([split_of[names[row]] for row in kept.tolist()], object)
    return {split: kept[splits == split] for split in SPLITS}


def _fill(order: list[str], num_bytes_of: Mapping[str, int], target_bytes: float) -> list[str]:
    """Return the names that fill `target_bytes`, the smallest one if none fits."""
    chosen: list[str] = []
    filled_bytes = 0
    for name in order:
        if filled_bytes >= target_bytes:
            break
        if filled_bytes + num_bytes_of[name] <= target_bytes * _MAX_FILL:
            chosen.append(name)
            filled_bytes += num_bytes_of[name]
    return chosen or [min(order, key=lambda name: (num_bytes_of[name], name))]
