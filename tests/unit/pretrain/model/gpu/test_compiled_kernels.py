"""The kernels compile for GPUs that are not there: no spills, enough shared memory, tensor cores."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pretrain.model.fused.gpu.tile_sizes import table

ROOT = Path(__file__).resolve().parents[5]


def _check(only: str) -> int:
    """Compile what the shipped table has, in a process that does not interpret; return how many kernels there were."""
    words = [sys.executable, "-m", "benchmarks.gpu_tiles", "--check", "--only", only]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "0"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"(\d+) kernels, 0 of them", done.stdout)
    assert counted is not None, done.stdout
    return int(counted[1])


def test_the_kernels_of_the_recipes_fit() -> None:
    assert _check("bf16 64 narrow") == 12
    assert _check("bf16 64 wide") == 12


def test_a_kernel_of_float32_fits() -> None:
    """Every statement is compiled for its type: what bfloat16 alone compiles is not enough."""
    assert _check("forward sm_80 fp32 64 narrow") == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_kernels_fit() -> None:
    assert len(table()) == 124
    assert _check("") == 240


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_variants_of_the_kernels_of_the_recipes_fit() -> None:
    script = """
from benchmarks.gpu_tiles import misfits_among_variants
assert misfits_among_variants("bf16 64 narrow") == []
"""
    _run(script)


def test_a_tile_that_is_too_large_is_found() -> None:
    script = """
from pretrain.model.fused.gpu.compilation import Configuration, compile_kernel
from pretrain.model.fused.gpu.tile_sizes import Tile
compiled = compile_kernel(Configuration("rows", "sm_80", "bf16", 64, "narrow", Tile(64, 64, 4, 2)))
assert compiled.spilled_bytes > 0
assert not compiled.fits("sm_80")
"""
    _run(script)


def _run(script: str) -> None:
    """Run a script in a process that does not interpret kernels."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
