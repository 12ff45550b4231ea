"""Where the tests of kernels run: on a GPU, or interpreted on the CPU if the environment asks for it.

    PERMCODE_GPU_TESTS_INTERPRETED=1 python -m pytest -m gpu tests/gpu

Interpreted kernels show that the tests can be passed; only a GPU shows that its kernels pass them. With
`--confcutdir=tests/gpu` the tests need no more than torch, Triton, NumPy, pydantic and pytest.
"""

import os

# Triton looks when the kernels are imported.
if os.environ.get("PERMCODE_GPU_TESTS_INTERPRETED"):
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The GPU, or the CPU that interprets; skips where there is neither."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if not os.environ.get("PERMCODE_GPU_TESTS_INTERPRETED"):
        pytest.skip("needs a GPU")
    return torch.device("cpu")
