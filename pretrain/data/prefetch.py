"""Read-ahead of the lanes of one worker."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

from cluster.errors import UserError
from pretrain.data.lanes import LaneBatch, LaneReader, LaneWindow

LANE_TOKENS = 16384
"""Tokens of a lane that are read at once: enough to amortize the work per lane, few enough for a processor's cache."""
_WINDOW_TOKENS = 1 << 21
"""The most tokens of all lanes that are read at once."""
_NONE = -1


class LaneFeed:
    """Returns the batches of `lanes` step by step, while a thread reads the next steps.

    A batch depends on the cursor alone. A cursor that does not follow the last one is read while the caller waits, and
    reading ahead continues from there.
    """

    def __init__(self, reader: LaneReader, lanes: range, first_cursor: int) -> None:
        self._reader, self._lanes = reader, lanes
        lane_tokens = min(LANE_TOKENS, _WINDOW_TOKENS // len(lanes))
        self._window_steps = max(1, lane_tokens // reader.segment_tokens)
        self._thread = ThreadPoolExecutor(1, "lanes")
        self._window: LaneWindow | None = None
        self._ahead_cursor = first_cursor
        self._ahead = self._begin(first_cursor)

    def take(self, cursor: int) -> LaneBatch:
        """Return the batch at `cursor`. Raises UserError with the tar and the block that cannot be read."""
        started_s = time.perf_counter()
        if self._window is None or cursor not in self._window.steps:
            self._window = self._read(cursor)
            self._ahead_cursor = self._window.steps.stop
            self._ahead = self._begin(self._ahead_cursor)
        return self._window.batch(cursor, time.perf_counter() - started_s)

    def close(self) -> None:
        """Stop reading ahead."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self, cursor: int) -> LaneWindow:
        if cursor != self._ahead_cursor:
            self._ahead.cancel()
            self._ahead = self._begin(cursor)
        try:
            return self._ahead.result()
        except UserError:
            self._ahead_cursor = _NONE  # the next call tries again
            if self._window_steps == 1:
                raise
            # The steps before the one that cannot be read are usable: read step by step from here on.
            self._window_steps = 1
            return self._begin(cursor).result()

    def _begin(self, cursor: int) -> Future[LaneWindow]:
        return self._thread.submit(self._read_window, cursor, self._window_steps)

    def _read_window(self, cursor: int, num_steps: int) -> LaneWindow:
        window = self._reader.window(cursor, num_steps, self._lanes)
        self._reader.open_ahead(window.steps.stop, self._lanes)
        return window
