"""Ray Train's workers: their process group on one machine or on a cluster, and SIGTERM as a request to stop.

Torch's TCPStore listens on all addresses whatever MASTER_ADDR is, and answers anyone; Gloo and NCCL listen on the
address of the machine's host name. On one machine the store is a file here, and Gloo and NCCL listen on loopback, so
that nothing can be reached from outside. On a cluster they listen on the address by which Ray knows the node: its host
name may resolve to 127.0.1.1, or not at all.
"""

import os
import secrets
import socket
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.torch.config import (
    _set_torch_distributed_env_vars,
    _setup_torch_process_group,
    _TorchBackend,
)
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

from cluster.watch import listen_for_sigterm

_reserved: list[socket.socket] = []


class ClusterTorchConfig(TorchConfig):  # type: ignore[misc]
    """A TorchConfig for a cluster."""

    @property
    def backend_cls(self) -> type["_ClusterBackend"]:
        return _ClusterBackend


class _ClusterBackend(_TorchBackend):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: ClusterTorchConfig) -> None:
        """Set up the workers' process group; called by Ray Train's controller."""
        worker_group.execute(listen_for_sigterm)
        worker_group.execute(_use_the_node_s_address)
        super().on_start(worker_group, backend_config)


class LocalTorchConfig(TorchConfig):  # type: ignore[misc]
    """A TorchConfig for the local Ray; it needs a backend (nccl or gloo)."""

    @property
    def backend_cls(self) -> type["_LocalBackend"]:
        return _LocalBackend


class LocalTorchTrainer(TorchTrainer):  # type: ignore[misc]
    """A TorchTrainer for the local Ray, without two processes that take seconds to start.

    One would serve Ray's datasets, of which there are none; one would free the workers' placement group when this
    process dies, but then the local Ray dies as well.
    """

    def _create_default_callbacks(self) -> list[Any]:
        unneeded = (DatasetsCallback, PlacementGroupCleanerCallback)
        return [one for one in super()._create_default_callbacks() if not isinstance(one, unneeded)]


class _LocalBackend(_TorchBackend):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: LocalTorchConfig) -> None:
        """Set up the workers' process group; called by Ray Train's controller."""
        session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
        # A new name for every attempt: the content of an old file would be taken for this group's.
        store = session / f"process-group-{secrets.token_hex(8)}"
        worker_group.execute(listen_for_sigterm)
        port = worker_group.execute_single(0, _reserve_port)
        worker_group.execute(_set_local_environment, port)
        worker_group.execute(_set_torch_distributed_env_vars)
        ray.get(
            [
                worker_group.execute_single_async(
                    rank,
                    _setup_torch_process_group,
                    backend=backend_config.backend,
                    world_rank=rank,
                    world_size=len(worker_group),
                    init_method=f"file://{store}",
                    timeout_s=backend_config.timeout_s,
                )
                for rank in range(len(worker_group))
            ]
        )


def _reserve_port() -> int:
    """Reserve a port that nothing listens on: DeepSpeed puts MASTER_PORT into the names of its shared memory."""
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    _reserved.append(reserved)
    return int(reserved.getsockname()[1])


def _set_local_environment(port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")


def _use_the_node_s_address() -> None:
    """Make Gloo and NCCL use the network interface that has this node's address, where the user chose none."""
    own = ray.util.get_node_ip_address()
    for interface, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == own for one in addresses):
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, interface)
            return
