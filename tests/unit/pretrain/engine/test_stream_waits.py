"""The host's wait at the end of a ZeRO optimizer's backward pass becomes a wait of its streams for each other."""

from typing import Any

import pytest

from pretrain.engine.stream_waits import exchanges_on_own_stream, order_streams_without_host

pytest.importorskip("deepspeed")


class Stream:
    """Notes what waits for what."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order = name, order

    def wait_stream(self, other: "Stream") -> None:
        self.order.append(f"{self.name} waits for {other.name}")


class Optimizer:
    """As DeepSpeed's: its epilogue waits for the device, and may fail."""

    def __init__(self, order: list[str], fails: bool = False) -> None:
        self.reduction_stream, self.overlap_comm = Stream("exchange", order), True
        self.order, self.fails = order, fails

    def independent_gradient_partition_epilogue(self) -> None:
        from deepspeed.accelerator import get_accelerator

        self.order.append("last bucket")
        get_accelerator().synchronize()
        if self.fails:
            raise RuntimeError("epilogue")
        self.order.append("sums are used")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, on a device whose synchronisation and current stream are noted."""
    from deepspeed.accelerator import get_accelerator

    found: list[str] = []
    monkeypatch.setattr(get_accelerator(), "synchronize", lambda *_: found.append("host waits"))
    monkeypatch.setattr(get_accelerator(), "current_stream", lambda *_: Stream("current", found))
    return found


def test_the_streams_wait_for_each_other_where_the_host_waited(order: list[str]) -> None:
    optimizer = Optimizer(order)
    optimizer.independent_gradient_partition_epilogue()
    assert order == ["last bucket", "host waits", "sums are used"]
    order.clear()
    order_streams_without_host(optimizer)
    optimizer.independent_gradient_partition_epilogue()
    assert order == [
        "last bucket", "current waits for exchange", "exchange waits for current", "sums are used"
    ]  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_other_waits_of_the_host_stay(order: list[str], fails: bool) -> None:
    from deepspeed.accelerator import get_accelerator

    optimizer = Optimizer(order, fails)
    order_streams_without_host(optimizer)
    if fails:
        with pytest.raises(RuntimeError, match="epilogue"):
            optimizer.independent_gradient_partition_epilogue()
    else:
        optimizer.independent_gradient_partition_epilogue()
    get_accelerator().synchronize()
    assert order[-1] == "host waits"
    assert order.count("host waits") == 1


def test_only_an_exchange_on_a_stream_of_its_own_is_changed() -> None:
    optimizer: Any = Optimizer([])
    assert exchanges_on_own_stream(optimizer)
    optimizer.overlap_comm = False
    assert not exchanges_on_own_stream(optimizer)
    optimizer.overlap_comm, optimizer.reduction_stream = True, None  # a CPU
    assert not exchanges_on_own_stream(optimizer)
    assert not exchanges_on_own_stream(object())
