"""A job's log and end, followed from outside the cluster."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from cluster.keep_alive import INTERRUPTED_EXIT_CODE
from cluster.reporter import Reporter

_NUM_RECONNECTS = 10
_RECONNECT_S = 3.0
_PROBE_TIMEOUT_S = 10.0
_SILENCE_S = 20.0
"""After so long without a line the connection is replaced: that to a head without power stays open for ever."""
_MAX_MESSAGE_CHARS = 1000
_OWN_LINES = ("permcode: error:", "permcode: failed")


async def follow_log(client: Any, submission_id: str, address: str, reporter: Reporter) -> None:
    """Print every complete log line once, until the job has ended; reconnect when the connection is lost."""
    num_printed_chars = 0
    failures = 0
    pending = ""
    while True:
        num_read_chars = 0
        try:
            async for chunk in _log_chunks(client, submission_id):
                # A new connection sends the log from its beginning.
                fresh = chunk[max(0, num_printed_chars - num_read_chars) :]
                num_read_chars += len(chunk)
                if not fresh:
                    continue
                num_printed_chars += len(fresh)
                failures = 0
                *lines, pending = (pending + fresh).split("\n")
                for line in lines:
                    reporter.line(line.rstrip("\r"))
            if _has_ended(client, submission_id, address):
                break
        except (ConnectionError, RuntimeError, OSError):
            failures += 1
            if failures > _NUM_RECONNECTS:
                raise
        await asyncio.sleep(_RECONNECT_S)
    if pending:
        reporter.line(pending)


async def _log_chunks(client: Any, submission_id: str) -> AsyncIterator[str]:
    """Yield the log from its beginning, until the job or the connection ends or nothing comes for a while."""
    import aiohttp

    chunks = client.tail_job_logs(submission_id)
    following: asyncio.Task[str] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(chunks))
            done, _ = await asyncio.wait({following}, timeout=_SILENCE_S)
            if not done:
                return
            yield following.result()
    except StopAsyncIteration:
        return
    except aiohttp.ClientError as error:
        raise ConnectionError(str(error)) from error
    finally:
        if following is not None and not following.done():
            following.cancel()
            await asyncio.wait({following})


def _has_ended(client: Any, submission_id: str, address: str) -> bool:
    """Return whether the job has ended. Ray's client would wait for minutes for a machine that is gone."""
    url = urlsplit(address)
    port = url.port or (443 if url.scheme == "https" else 80)
    socket.create_connection((url.hostname or "", port), timeout=_PROBE_TIMEOUT_S).close()
    return bool(client.get_job_status(submission_id).is_terminal())


def _cause(message: str) -> str:
    """Return the line of our own that ended the job, from Ray's message with the end of the log; else its beginning."""
    own = [line.strip() for line in message.splitlines() if line.strip().startswith(_OWN_LINES)]
    return own[-1] if own else " ".join(message.split())[:_MAX_MESSAGE_CHARS]


def exit_code(client: Any, submission_id: str, reporter: Reporter) -> int:
    """Wait for the job's end, report it and return the job's own exit status."""
    info = client.get_job_info(submission_id)
    while not info.status.is_terminal():
        time.sleep(_RECONNECT_S)
        info = client.get_job_info(submission_id)
    status = str(info.status.value)
    if status == "SUCCEEDED":
        reporter.line(f"job {submission_id} succeeded")
        return 0
    if status == "STOPPED":
        reporter.warn(f"job {submission_id} was stopped")
        return INTERRUPTED_EXIT_CODE
    reporter.warn(f"job {submission_id} failed: {_cause(info.message or 'no message')}")
    code = info.driver_exit_code
    # A negative code is the signal that ended the driver; shells report it as 128 + signal.
    return 1 if code in (None, 0) else int(code) if code > 0 else 128 - int(code)
