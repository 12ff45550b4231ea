"""The lanes of one worker, read ahead of the step that asks for them."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

from cluster.errors import UserError
from pretrain.data.lanes import LaneBatch, LaneReader, LaneWindow

_LANE_TOKENS = 16384
"""Of each lane, read at once: enough that the work per lane does not show, little enough for a processor's cache."""
_WINDOW_TOKENS = 1 << 21
"""Of all lanes at most."""
_NONE = -1


class LaneFeed:
    """Hands out what `lanes` read, step by step; a thread reads the next steps meanwhile.

    What is handed out depends on the cursor alone. Any cursor may be asked for; one that does not follow the last
    is read while the caller waits, and reading ahead goes on from there.
    """

    def __init__(self, reader: LaneReader, lanes: range, first_cursor: int) -> None:
        self._reader, self._lanes = reader, lanes
        lane_tokens = min(_LANE_TOKENS, _WINDOW_TOKENS // len(lanes))
        self._window_steps = max(1, lane_tokens // reader.segment_tokens)
        self._thread = ThreadPoolExecutor(1, "lanes")
        self._window: LaneWindow | None = None
        self._ahead_cursor = first_cursor
        self._ahead = self._begin(first_cursor)

    def take(self, cursor: int) -> LaneBatch:
        """What the lanes read at `cursor`. UserError naming the tar and the block that cannot be read."""
        started_s = time.perf_counter()
        if self._window is None or cursor not in self._window.steps:
            self._window = self._read(cursor)
            self._ahead_cursor = self._window.steps.stop
            self._ahead = self._begin(self._ahead_cursor)
        return self._window.batch(cursor, time.perf_counter() - started_s)

    def close(self) -> None:
        """Read ahead no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self, cursor: int) -> LaneWindow:
        if cursor != self._ahead_cursor:
            self._ahead.cancel()
            self._ahead = self._begin(cursor)
        try:
            return self._ahead.result()
        except UserError:
            self._ahead_cursor = _NONE  # whoever asks again wants another try
            if self._window_steps == 1:
                raise
            # The steps before the one that cannot be read are still good: from here on step by step.
            self._window_steps = 1
            return self._begin(cursor).result()

    def _begin(self, cursor: int) -> Future[LaneWindow]:
        return self._thread.submit(self._read_window, cursor, self._window_steps)

    def _read_window(self, cursor: int, num_steps: int) -> LaneWindow:
        window = self._reader.window(cursor, num_steps, self._lanes)
        self._reader.open_ahead(window.steps.stop, self._lanes)
        return window
