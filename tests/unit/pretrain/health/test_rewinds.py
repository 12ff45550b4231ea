"""The data that rewinds skip and the checkpoints that they make void."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from pretrain.health.rewinds import Rewind, Rewinds, read_rewinds, write_rewinds


def rewind(to_step: int, skipped_from: int, skipped_to: int) -> Rewind:
    return Rewind(to_step + 9, to_step, skipped_from, skipped_to, "a spike")


def test_without_rewinds_data_steps_follow_each_other_and_no_checkpoint_is_void() -> None:
    assert [Rewinds().next_cursor(cursor) for cursor in range(3)] == [1, 2, 3]
    assert not Rewinds().is_void(100, 0)


windows = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=6)


@given(windows=windows, cursor=st.integers(0, 50))
def test_the_next_data_step_is_the_first_later_one_in_no_window(
    windows: list[tuple[int, int]], cursor: int
) -> None:
    rewinds = Rewinds(tuple(rewind(0, start, start + length) for start, length in windows))
    skipped = {place for start, length in windows for place in range(start, start + length)}
    assert rewinds.next_cursor(cursor) == next(c for c in range(cursor + 1, 200) if c not in skipped)


def test_a_checkpoint_after_the_target_of_a_rewind_it_has_not_seen_is_void() -> None:
    rewinds = Rewinds((rewind(10, 12, 15), rewind(30, 40, 41)))
    assert not rewinds.is_void(10, 0)
    assert rewinds.is_void(11, 0)
    assert not rewinds.is_void(20, 1)
    assert rewinds.is_void(31, 1)
    assert not rewinds.is_void(31, 2)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    write_rewinds(tmp_path, Rewinds().with_one_more(rewind(10, 12, 15)))
    path = tmp_path / "rewinds.json"
    for old, new in (("12", "13"), ("to_step", "to_stop"), ("}", "")):
        whole = path.read_text()
        path.write_text(whole.replace(old, new))
        with pytest.raises(UserError, match="is damaged"):
            read_rewinds(tmp_path)
        path.write_text(whole)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_rewinds(tmp_path) == Rewinds()
    rewinds = Rewinds().with_one_more(rewind(10, 12, 15)).with_one_more(rewind(30, 40, 41))
    write_rewinds(tmp_path, rewinds)
    assert read_rewinds(tmp_path) == rewinds
