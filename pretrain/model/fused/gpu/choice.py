"""Whether the kernels serve an attention: on which GPUs, for which inputs, and after which check."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from cluster.errors import first_line
from pretrain.model.attention_scores import Distances, Queries
from pretrain.model.layout import AttentionMask, DistanceSpan

LEAST_CAPABILITY = (8, 0)
"""The oldest GPUs that multiply bfloat16."""
MAX_HEAD_DIM = 128
MAX_KEYS = 46_340
"""The most keys of a row: their ranks and groups are compared as one 32-bit number."""
_TYPES = (torch.float32, torch.bfloat16)
_log = logging.getLogger(__name__)
_is_planned: ContextVar[bool] = ContextVar("_is_planned", default=False)


@contextmanager
def planned_for_kernels() -> Iterator[None]:
    """Let tensors without contents be served as on a GPU that has the kernels, within the block."""
    token = _is_planned.set(True)
    try:
        yield
    finally:
        _is_planned.reset(token)


def has_kernels(rows: Tensor) -> bool:
    """Return whether these rows are on a GPU that runs the kernels."""
    if rows.device.type == "meta":
        return _is_planned.get() and rows.dtype in _TYPES
    return rows.device.type == "cuda" and rows.dtype in _TYPES and _runs_kernels(rows.device)


@cache
def _runs_kernels(device: torch.device) -> bool:
    if reason := why_no_kernels(device):
        _log.warning("attention and loss run in plain PyTorch, which takes more time and memory: %s", reason)
    return not reason


def served_by_kernels(queries: Queries, distances: Distances, mask: AttentionMask, dropout: float) -> bool:
    """Return whether `attend_on_gpu` can be used; a reason that a user can change is logged once.

    The first call for new features compiles the kernels and compares them with the plain operations on a small problem.
    """
    query_NBQH = queries.query_NBQH
    if not has_kernels(query_NBQH) or not _is_supported(queries, distances, mask):
        return False
    if query_NBQH.device.type == "meta":
        return True
    has_distances = distances.keys_NRH is not None
    return _is_sound(
        query_NBQH.device,
        query_NBQH.dtype,
        query_NBQH.shape[-1],
        mask.largest_gap_tokens,
        has_distances,
        queries.content_bias_NH is not None,
        queries.document_NBQ2 is not None and mask.keys.document_BX is not None,
        dropout,
    )


def _is_supported(queries: Queries, distances: Distances, mask: AttentionMask) -> bool:
    query_NBQH, keys = queries.query_NBQH, mask.keys
    biases = (queries.content_bias_NH is None, queries.distance_bias_NH is None)
    return (
        query_NBQH.shape[-1] <= MAX_HEAD_DIM
        and query_NBQH.shape[2] > 0
        and keys.position_BX.shape[1] <= MAX_KEYS
        and distances.values_RH is None
        and (distances.keys_NRH is None or distances.keys_NRH.shape[1] == len(mask.span))
        and (distances.keys_NRH is None or biases[0] == biases[1])
        and mask.span == DistanceSpan.of_segment(keys.extent, mask.memory_tokens)
    )


@cache
def _is_sound(
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    gap_tokens: int | None,
    has_distances: bool,
    has_biases: bool,
    has_documents: bool,
    dropout: float,
) -> bool:
    from pretrain.model.fused.gpu.self_check import Features, deviation
    from pretrain.model.fused.gpu.tile_sizes import architecture_of, tiles_for

    features = Features(dtype, head_dim, gap_tokens, has_distances, has_biases, has_documents, dropout)
    if tiles_for(architecture_of(device), dtype, head_dim, gap_tokens, has_distances) is None:
        reason = "no tile is known for it"
    else:
        reason = failure_of(lambda: deviation(features, device))
    if reason:
        _log.warning(
            "attention of %s on %s runs in plain PyTorch, which takes more time and memory: %s",
            features,
            torch.cuda.get_device_name(device),
            reason,
        )
    return not reason


def failure_of(check: Callable[[], str]) -> str:
    """Return what a check of kernels found, or why they do not compile or run; empty if they are sound."""
    try:
        return check()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton's own, of its compiler's, assembler's and launcher's
        return f"its kernels do not compile or run ({type(error).__name__}: {first_line(error)})"


def why_no_kernels(device: torch.device) -> str:
    """Return why the kernels cannot run on a GPU at all; empty if they can."""
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return f"{torch.cuda.get_device_name(device)} is older than compute capability 8.0"
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    return ""
