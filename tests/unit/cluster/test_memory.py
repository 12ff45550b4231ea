"""Free memory is the machine's, or what the limit of a container leaves."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cluster.memory
from cluster.errors import UserError
from cluster.memory import check_memory, free_bytes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty control group folder; the machine has 8 GB free."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    monkeypatch.setattr(cluster.memory, "CGROUP_FOLDER", tmp_path)
    return tmp_path


def limit(group: Path, most: str, current_bytes: int, stat: str) -> None:
    for name, text in {"max": most, "current": f"{current_bytes}\n", "stat": stat}.items():
        (group / f"memory.{name}").write_text(text)


def test_without_a_limit_the_machines_memory_counts(group: Path) -> None:
    assert free_bytes(CPU) == 8_000_000_000
    limit(group, "max\n", 3_000_000_000, "anon 1\n")
    assert free_bytes(CPU) == 8_000_000_000


def test_the_page_cache_does_not_count_as_used(group: Path) -> None:
    stat = "anon 1000000000\nactive_file 500000000\ninactive_file 1500000000\nshmem 5\n"
    limit(group, "4000000000\n", 3_000_000_000, stat)
    assert free_bytes(CPU) == 3_000_000_000
    limit(group, "100000000000\n", 3_000_000_000, stat)
    assert free_bytes(CPU) == 8_000_000_000


def test_the_error_names_the_remedy(group: Path) -> None:
    check_memory(8_000_000_000, CPU, "all of it", "nothing to do")
    with pytest.raises(UserError) as refused:
        check_memory(12_900_000_000, CPU, "writing 128 texts", "write fewer")
    assert str(refused.value) == (
        "writing 128 texts takes 12.9 GB of memory, of which 8.0 GB are free: write fewer"
    )
