"""Tensor files are ordinary safetensors files, and whole tensors are read out of pieces however they were cut."""

import itertools
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import sha256_file
from pretrain.checkpoint.tensor_files import StoredTensors, write_pieces, write_tensors
from pretrain.engine.pieces import Piece


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


WHOLE = {"a.weight": torch.arange(12.0).reshape(3, 4), "b": torch.arange(5.0) + 100}


def cut(name: str, *bounds: int, shape: tuple[int, ...] | None = None) -> list[Piece]:
    """Pieces of WHOLE[name] between neighbouring bounds."""
    flat, shape = WHOLE[name].reshape(-1), shape or tuple(WHOLE[name].shape)
    pairs = zip(bounds, bounds[1:], strict=False)
    return [Piece(name, shape, start, flat[start:end].clone()) for start, end in pairs]


def stored(folder: Path, *files: list[Piece]) -> StoredTensors:
    paths = [folder / f"{number}.safetensors" for number in range(len(files))]
    for path, pieces in zip(paths, files, strict=True):
        write_pieces(path, {"": pieces})
    return StoredTensors(paths)


@given(
    cuts=st.dictionaries(st.sampled_from(sorted(WHOLE)), st.sets(st.integers(0, 12)), min_size=2),
    owners=st.lists(st.integers(0, 2), min_size=40, max_size=40),
)
@settings(max_examples=30, deadline=None)
def test_any_cut_over_any_files_gives_the_whole_tensors(
    tmp_path_factory: pytest.TempPathFactory, cuts: dict[str, set[int]], owners: list[int]
) -> None:
    files: list[list[Piece]] = [[], [], []]
    taken = iter(owners)
    for name, inner in cuts.items():
        size = WHOLE[name].numel()
        for piece in cut(name, *sorted({0, size} | {bound for bound in inner if bound < size})):
            files[next(taken)].append(piece)
    tensors = stored(tmp_path_factory.mktemp("pieces"), *files)
    assert tensors.shapes == {name: tuple(whole.shape) for name, whole in WHOLE.items()}
    for name, whole in WHOLE.items():
        assert torch.equal(tensors.tensor(name), whole)
        for start, stop in itertools.combinations(range(whole.numel() + 1), 2):
            assert torch.equal(tensors.part(name, start, stop), whole.flatten()[start:stop])


def test_a_tensor_is_a_copy_of_its_own(tmp_path: Path) -> None:
    tensors = stored(tmp_path, cut("b", 0, 5))
    first: Tensor = tensors.tensor("b")
    first.zero_()
    assert torch.equal(tensors.tensor("b"), WHOLE["b"])


@pytest.mark.parametrize(
    ("pieces", "reported"),
    [
        ([cut("b", 0, 2), cut("b", 3, 5)], "element 2 of b is missing"),
        ([cut("b", 1, 5)], "element 0 of b is missing"),
        ([cut("b", 0, 4)], "element 4 of b is missing"),
        ([cut("b", 0, 3), cut("b", 2, 5)], "element 2 of b is there twice"),
        ([cut("b", 0, 5), cut("b", 0, 5)], "element 0 of b is there twice"),
        ([cut("b", 0, 5, shape=(4,))], "element 4 of b is too much"),
        ([cut("b", 0, 2), cut("b", 2, 5, shape=(5, 1))], r"b has shape \(5, 1\) here and \(5,\) elsewhere"),
    ],
)
def test_pieces_that_do_not_cover_a_tensor_once_are_refused(
    tmp_path: Path, pieces: list[list[Piece]], reported: str
) -> None:
    with pytest.raises(UserError, match=reported):
        stored(tmp_path, *pieces)


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="file is damaged"):
        StoredTensors([tmp_path / "file"])


def test_a_receiver_opens_only_the_files_that_it_reads(tmp_path: Path) -> None:
    files = [cut("b", number, number + 1) for number in range(5)]
    sent = pickle.dumps(stored(tmp_path, *files))
    for number in (0, 1, 2, 4):
        (tmp_path / f"{number}.safetensors").unlink()
    received: StoredTensors = pickle.loads(sent)
    assert received.shapes == {"b": (5,)}
    assert torch.equal(received.part("b", 3, 4), WHOLE["b"][3:4])
    with pytest.raises(UserError, match="2.safetensors is damaged .*use another checkpoint"):
        received.part("b", 2, 4)
