"""One hash of all that a commit holds, whoever wrote it."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from cluster.storage import canonical_json
from pretrain.checkpoint.reading import open_commit
from pretrain.engine.pieces import MOMENTS


def digest(folder: Path) -> str:
    """Hex SHA-256 over weights, optimizer, memory and cursor in canonical form: by name and by lane.

    Equal for equal states whatever the number of ranks, their lanes and their pieces were. Raises UserError when the
    commit is not whole or of another format.
    """
    commit = open_commit(folder)
    hashed = hashlib.sha256(
        canonical_json({"cursor": commit.cursor, "adam_steps": commit.adam_steps}).encode()
    )

    def add(label: str, tensor: Tensor) -> None:
        hashed.update(canonical_json([label, str(tensor.dtype), list(tensor.shape)]).encode())
        hashed.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)

    for name in commit.names:
        add(name, commit.master(name))
        for kind in MOMENTS:
            add(f"{kind}.{name}", commit.moment(kind, name))
    for lane in range(commit.num_lanes):
        memory = commit.memory(range(lane, lane + 1))
        for number, layer_BMD in enumerate(memory.layers_BMD):
            add(f"lane {lane} layer {number}", layer_BMD)
        add(f"lane {lane} group", memory.group_BM)
        add(f"lane {lane} document", memory.document_BM)
    return hashed.hexdigest()
