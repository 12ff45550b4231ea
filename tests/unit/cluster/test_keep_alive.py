"""When a run is tried again, and when not."""

from collections.abc import Callable

import pytest

from cluster import keep_alive as module
from cluster.errors import RetryableError, UserError
from cluster.keep_alive import MAX_ATTEMPTS, keep_alive
from cluster.reporter import Reporter


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)


def ending(*ends: int | Exception) -> tuple[Callable[[], int], list[int | Exception]]:
    """A job whose attempts end like this, and the ends that are left."""
    left = list(ends)

    def submit() -> int:
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    return submit, left


@pytest.mark.parametrize("passing", [75, 137, RetryableError("no head", "lost cluster")])
@pytest.mark.parametrize("end", [0, 2, 130])
def test_what_may_pass_is_tried_again_and_what_not_ends(passing: int | Exception, end: int) -> None:
    submit, left = ending(passing, passing, end, 0)
    assert keep_alive(submit, Reporter()) == end
    assert left == [0]


def test_an_unexpected_error_is_tried_again_once() -> None:
    submit, left = ending(1, 1, 0)
    assert keep_alive(submit, Reporter()) == 1
    assert left == [0]


def test_short_attempts_have_a_budget() -> None:
    submit, left = ending(*[75] * (MAX_ATTEMPTS + 2))
    assert keep_alive(submit, Reporter()) == 75
    assert len(left) == 1


def test_long_attempts_renew_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock_s))
    submit, left = ending(*[75] * (3 * MAX_ATTEMPTS), 0)
    assert keep_alive(submit, Reporter()) == 0
    assert left == []


def test_an_error_of_the_user_is_raised() -> None:
    submit, _ = ending(75, UserError("the token is refused"))
    with pytest.raises(UserError, match="refused"):
        keep_alive(submit, Reporter())
