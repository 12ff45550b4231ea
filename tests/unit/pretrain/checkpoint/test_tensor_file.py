"""What is written piece by piece is an ordinary safetensors file, and its hash is the file's."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from cluster.storage import sha256_file
from pretrain.checkpoint.tensor_file import write_tensors


def test_safetensors_reads_every_type_and_shape(tmp_path: Path) -> None:
    tensors = {
        "odd": torch.randn(3).to(torch.bfloat16),
        "double": torch.randn(2, 2, dtype=torch.float64),
        "half": torch.randn(5).half(),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(4, 0, 8),
        "groups": torch.tensor([[-1, 1 << 40]]),
        "int": torch.tensor([7], dtype=torch.int32),
    }
    path = tmp_path / "file"
    entry = write_tensors(path, tensors, {"key": 'quoted "value"'})
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor), name
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"key": 'quoted "value"'}
    assert (entry.size_bytes, entry.sha256) == (path.stat().st_size, sha256_file(path))


def test_a_file_larger_than_a_chunk_is_hashed_whole(tmp_path: Path) -> None:
    tensor = torch.arange(3_000_001, dtype=torch.int32)
    entry = write_tensors(tmp_path / "file", {"tensor": tensor}, {})
    assert entry.sha256 == sha256_file(tmp_path / "file")
    assert torch.equal(load_file(tmp_path / "file")["tensor"], tensor)
