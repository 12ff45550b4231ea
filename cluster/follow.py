"""Show a journal while another process writes it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.journal import JournalRecord, JournalTail


@contextmanager
def follow_journal(
    path: Path, show: Callable[[JournalRecord], None], poll_s: float = 0.5, skip_existing: bool = False
) -> Iterator[None]:
    """Call `show`, from a separate thread, with every record that is appended to the journal while the block runs.

    The last records are shown before the `with` statement ends. `skip_existing` leaves out the records that exist at
    the start. An error in `show` stops the following, not the block; it is raised after the block unless the block
    itself raises one.
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
