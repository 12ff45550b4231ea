"""Small models in float64 whose every weight matters."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    # Tiny matrices: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
