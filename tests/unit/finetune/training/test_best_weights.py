"""The file of the best weights: the same bytes for the same weights, and no damage goes unnoticed."""

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from cluster.errors import UserError
from finetune.training.best_weights import BEST_NAME, Best, load_best, read_best, write_best


def _module() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(3, 2)


def test_every_changed_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    written = _module()
    write_best(tmp_path, Best(7, 0.5), dict(written.named_parameters()))
    data, draw = (tmp_path / BEST_NAME).read_bytes(), random.Random(0)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << draw.randrange(8)
        (tmp_path / BEST_NAME).write_bytes(changed)
        module = nn.Linear(3, 2)
        try:
            load_best(tmp_path, module)
            found = read_best(tmp_path)
        except UserError:
            continue
        assert found == Best(7, 0.5), place
        assert all(
            torch.equal(module.state_dict()[name], value) for name, value in written.state_dict().items()
        )


def test_a_file_without_a_checksum_is_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    written = _module()
    save_file(written.state_dict(), tmp_path / BEST_NAME, {"best": '{"step": 7, "metric": 0.5}'})
    module = nn.Linear(3, 2)
    load_best(tmp_path, module)
    assert torch.equal(module.weight, written.weight)
    assert read_best(tmp_path) == Best(7, 0.5)


def test_other_parameters_are_refused(tmp_path: Path) -> None:
    write_best(tmp_path, Best(7, 0.5), dict(_module().named_parameters()))
    with pytest.raises(UserError, match="other parameters"):
        load_best(tmp_path, nn.Linear(3, 2, bias=False))
