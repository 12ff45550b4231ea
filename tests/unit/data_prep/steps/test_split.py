"""Held-out repositories are complete, balanced by bytes, and always the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.config import SplitConfig
from data_prep.documents import SPLITS
from data_prep.steps.split import split_repositories

SIZES = st.dictionaries(st.text("abcdefgh", min_size=1), st.integers(1, 10**9), min_size=3, max_size=40)


@given(SIZES, st.floats(0.01, 0.25), st.floats(0.01, 0.25), st.integers(0, 5))
def test_every_split_has_a_repository_and_its_share(
    sizes: dict[str, int], validation: float, test: float, seed: int
) -> None:
    config = SplitConfig(validation_share=validation, test_share=test, seed=seed)
    split_of = split_repositories(sizes, config)
    assert set(split_of) == set(sizes)
    assert set(split_of.values()) == set(SPLITS)
    total_bytes = sum(sizes.values())
    for split, share in (("validation", validation), ("test", test)):
        names = [name for name in sizes if split_of[name] == split]
        assert len(names) == 1 or sum(sizes[name] for name in names) <= 1.1001 * share * total_bytes


def test_many_equal_repositories_fill_the_shares() -> None:
    sizes = {f"package{i}": 100 for i in range(1000)}
    split_of = split_repositories(sizes, SplitConfig(validation_share=0.03, test_share=0.05))
    counts = {split: sum(1 for value in split_of.values() if value == split) for split in SPLITS}
    assert counts == {"train": 920, "validation": 30, "test": 50}


def test_the_seed_chooses_and_the_order_of_names_does_not_matter() -> None:
    sizes = {f"package{i}": 100 + i for i in range(100)}
    first = split_repositories(sizes, SplitConfig(seed=1))
    assert first == split_repositories(dict(reversed(sizes.items())), SplitConfig(seed=1))
    assert first != split_repositories(sizes, SplitConfig(seed=2))


def test_too_few_repositories() -> None:
    with pytest.raises(
        UserError, match=r"repositories with usable files in the corpus \(2: a, b\).*at least 3"
    ):
        split_repositories({"a": 1, "b": 1}, SplitConfig())
