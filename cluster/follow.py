"""Show a journal while somebody else writes it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.journal import JournalRecord, JournalTail


@contextmanager
def followed(
    path: Path, show: Callable[[JournalRecord], None], poll_s: float = 0.5, skip_existing: bool = False
) -> Iterator[None]:
    """Call `show` with every record that the journal gains while the block runs, from a thread of its own.

    What was written last is shown before the block's end returns. `skip_existing` leaves out the records
    that are there already. An error in `show` ends the showing, not the block, and is raised after it
    unless the block raises its own.
    """
    tail = JournalTail(path)
    if skip_existing:
        tail.new_records()
    stopped = threading.Event()
    failures: list[Exception] = []

    def follow() -> None:
        is_last = False
        try:
            while not is_last:
                is_last = stopped.wait(poll_s)
                for record in tail.new_records():
                    show(record)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=follow, name=f"follow-{path.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    if failures:
        raise failures[0]
