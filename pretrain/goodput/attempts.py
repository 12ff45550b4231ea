"""What an attempt leaves of itself from its first moment on, so that its time can be accounted for."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.heartbeat import Heartbeat, process_started_s
from cluster.journal import Journal
from pretrain.files import PretrainFiles
from pretrain.journal.events import Attempt

HEARTBEAT_NAME = PretrainFiles.HEARTBEAT


@contextmanager
def recorded_attempt(journal: Journal, folder: Path) -> Iterator[None]:
    """Write that an attempt begins, and beat in `folder` while the block runs.

    For the only writer of the run, and before all that takes time: an attempt that is killed in it shows, too.
    """
    import torch

    host = socket.gethostname()
    with Heartbeat(folder / HEARTBEAT_NAME) as heartbeat:
        attempt = Attempt(
            process_started_s=process_started_s(),
            previous_beat_s=heartbeat.previous_beat_s,
            host=host,
            gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        )
        journal.event(
            f"process {os.getpid()} on {host} begins to work on the run",
            name=attempt.name,
            **attempt.facts(),
        )
        yield
