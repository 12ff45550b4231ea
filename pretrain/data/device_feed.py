"""A worker's segments on its device; on a GPU the next step's are copied while the step before computes.

Shapes: B lanes, L segment.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cluster.errors import UserError
from pretrain.device_copies import on_device

if TYPE_CHECKING:  # so that a machine that has torch alone can try this on its GPU
    from pretrain.data.lanes import LaneBatch
    from pretrain.data.prefetch import LaneFeed


@dataclass(frozen=True)
class Segments:
    """What was read of some lanes at one step, with tokens, groups and maybe documents int64 [B, L] on a device."""

    read: "LaneBatch"
    tokens_BL: Tensor
    group_BL: Tensor
    document_BL: Tensor | None

    @classmethod
    def of(cls, read: "LaneBatch", with_documents: bool, device: torch.device) -> "Segments":
        """Copy what was read to `device`; does not wait for a GPU."""
        document_BL = on_device(torch.from_numpy(read.document_BL), device) if with_documents else None
        tokens_BL = on_device(torch.from_numpy(read.tokens_BL), device)
        return cls(read, tokens_BL, on_device(torch.from_numpy(read.group_BL), device), document_BL)

    def tensors(self) -> list[Tensor]:
        """Return its tensors."""
        tensors_BL = [self.tokens_BL, self.group_BL]
        return tensors_BL if self.document_BL is None else [*tensors_BL, self.document_BL]


class DeviceFeed:
    """Copies the segments that a feed reads to a device: pinned and on a stream of its own if that is a GPU."""

    def __init__(
        self, feed: "LaneFeed", device: torch.device, with_documents: bool, copies_ahead: bool | None = None
    ) -> None:
        """`copies_ahead`: whether `prepare` does anything; None for GPUs only."""
        self._feed, self._device, self._with_documents = feed, device, with_documents
        self._copies_ahead = device.type == "cuda" if copies_ahead is None else copies_ahead
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._ahead: Segments | None = None
        self._copied: torch.cuda.Event | None = None

    def prepare(self, cursor: int) -> float:
        """Begin to copy the segments at `cursor`; return how long this waited for their data.

        What cannot be read is reported by the `take` that wants it: the steps before do not fail of it.
        """
        if not self._copies_ahead:
            return 0.0
        self._ahead = None
        try:
            self._ahead = self._begin(cursor)
        except UserError:
            return 0.0
        return self._ahead.read.wait_s

    def take(self, cursor: int) -> tuple[Segments, float]:
        """Return the segments at `cursor`, and how long this waited for their data.

        Work that the device is given from now on may use them. Raises UserError as `LaneFeed.take` does.
        """
        segments, self._ahead = self._ahead, None
        waited_s = 0.0
        if segments is None or segments.read.cursor != cursor:
            segments = self._begin(cursor)
            waited_s = segments.read.wait_s
        if self._copied is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._copied)
            for tensor_BL in segments.tensors():
                tensor_BL.record_stream(stream)
        return segments, waited_s

    def close(self) -> None:
        """Stop reading ahead."""
        self._feed.close()

    def _begin(self, cursor: int) -> Segments:
        """Read, and begin to copy."""
        read = self._feed.take(cursor)
        with torch.cuda.stream(self._stream):  # does nothing if there is none
            segments = Segments.of(read, self._with_documents, self._device)
        if self._stream is not None:
            self._copied = self._stream.record_event()
        return segments
