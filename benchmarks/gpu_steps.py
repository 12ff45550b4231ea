"""Predict training steps on GPUs from counted operations, bytes and tiles: nothing is measured here.

    python -m benchmarks.gpu_steps

Four tables: steps of the recipes on A100, H100 and H200 by attention (kernels, SDPA with the position scores as a
mask, plain operations); what each kernel does in a layer of `base`; the peak memory of a step by segment length; the
bytes of a decoding pass against the memory's bandwidth.
The kernels are taken to visit every tile; SDPA's products are taken to run as fast as the largest matrix products.
`python -m benchmarks.gpu_day` measures on a GPU.
"""

from typing import get_args

import torch

from benchmarks.gpu_tiles import GAP_TOKENS
from benchmarks.model_machine import print_table
from pipeline.folder.recipe import load_run_config
from pretrain.model.fused.gpu.tile_sizes import tiles_for
from pretrain.plan.attention_time import AttentionShape, all_kernels, kernel_work
from pretrain.plan.gpu_memory import GIB, passes_bytes
from pretrain.plan.hardware import find_gpu
from pretrain.plan.parameters import count_parameters
from pretrain.plan.step_time import BANDWIDTH_SHARE, Attention, predicted_step

RECIPES = ("small", "base", "large", "xl")
GPUS = ("a100-80gb", "h100", "h200")
LENGTHS_TOKENS = (512, 1024, 2048, 4096, 8192)
MEMORY_TOKENS = 512
DECODED_COLUMNS = 1024
_ROWS_OF_A_PASS = 2
_BF16_BYTES = 2


def print_steps() -> None:
    """Print the predicted steps of the recipes."""
    rows = []
    for recipe in RECIPES:
        run = load_run_config(recipe)
        vocab_size = run.prep.tokenizer.vocab_size
        for name in GPUS:
            gpu = find_gpu(name)
            for attention in get_args(Attention):
                step = predicted_step(run.pretrain, vocab_size, gpu, attention)
                parts = (step.attention_s, step.products_s, step.loss_s, step.others_s, step.optimizer_s)
                rows.append(
                    [
                        recipe,
                        name,
                        attention,
                        f"{step.seconds * 1e3:,.0f}",
                        *(f"{part / step.seconds:.0%}" for part in parts),
                        f"{step.tokens_per_s:,.0f}",
                        f"{step.utilisation(gpu, run.pretrain.precision):.0%}",
                    ]
                )
    parts_of = ["attention", "products", "loss", "moving", "optimizer"]
    head = ["recipe", "GPU", "attention by", "step ms", *parts_of, "tokens/s, GPU", "MFU"]
    print_table("Steps of one GPU, predicted", head, rows)


def print_kernels() -> None:
    """Print what each kernel does in one layer of `base` at segments of 1,024 with a memory of 512, for 8 lanes."""
    model = load_run_config("base").pretrain.model
    length = 1024
    columns = MEMORY_TOKENS + length + GAP_TOKENS
    shape = AttentionShape(
        model.num_heads,
        8,
        length + length // 2,
        columns,
        columns + length + GAP_TOKENS,
        model.head_dim,
        "bf16",
    )
    rows = []
    for name in GPUS:
        gpu = find_gpu(name)
        tiles = tiles_for(gpu.architecture, torch.bfloat16, shape.head_dim, GAP_TOKENS, has_distances=True)
        assert tiles is not None
        for kernel in all_kernels(shape):
            work = kernel_work(kernel, shape, tiles[kernel], gpu.architecture)
            seconds = work.cycles / (gpu.multiprocessors * gpu.clock_ghz * 1e9)
            tile = tiles[kernel].tile
            rows.append(
                [
                    name,
                    kernel,
                    f"{tile.rows}x{tile.columns}",
                    f"{work.tiles:,}",
                    f"{work.flops / 1e9:,.1f}",
                    f"{work.loaded_bytes / 1e9:,.2f}",
                    f"{seconds * 1e3:.2f}",
                    f"{work.flops / seconds / gpu.peak_flops('bf16'):.0%}",
                ]
            )
    head = ["GPU", "kernel", "tile", "tiles", "GFLOP", "GB loaded", "ms, predicted", "of peak"]
    print_table(f"Attention of one layer, {shape}", head, rows)


def print_memory() -> None:
    """Print the peak memory of one forward and backward pass of `base`, one lane, by segment length."""
    run = load_run_config("base")
    model = run.pretrain.model.model_copy(update={"memory_tokens": MEMORY_TOKENS})
    rows = []
    for length in LENGTHS_TOKENS:
        config = run.pretrain.model_copy(
            update={"segment_tokens": length, "micro_batch_lanes": 1, "model": model}
        )
        peaks = [passes_bytes(config, run.prep.tokenizer.vocab_size, kernels) for kernels in (True, False)]
        rows.append([f"{length:,}", *(f"{peak / GIB:.2f}" for peak in peaks)])
    print_table("Peak of one lane's passes, GiB, traced", ["segment", "kernels", "plain"], rows)


def print_generation() -> None:
    """Print the bytes of a pass that writes a token and predicts the next one, and the least time they take.

    Every weight but the embedding's rows is read once; keys and values are read once for each lane, distances once for
    all. What the kernels for few rows load, each for its own row, is more: the cache in front of the memory serves it.
    """
    rows = []
    for recipe in RECIPES:
        run = load_run_config(recipe)
        model, name = run.pretrain.model, "h100"
        gpu = find_gpu(name)
        weights_bytes = _BF16_BYTES * count_parameters(model, run.prep.tokenizer.vocab_size).total
        row_bytes = model.num_layers * model.num_heads * model.head_dim * _BF16_BYTES
        for lanes in (1, 8, 32):
            cache_bytes = (2 * lanes + 1) * DECODED_COLUMNS * row_bytes
            loaded_bytes = lanes * _ROWS_OF_A_PASS * 3 * DECODED_COLUMNS * row_bytes
            seconds = (weights_bytes + cache_bytes) / (BANDWIDTH_SHARE * gpu.memory_tb_per_s * 1e12)
            sizes = [f"{size / 1e9:.3f}" for size in (weights_bytes, cache_bytes, loaded_bytes)]
            rows.append([recipe, str(lanes), *sizes, f"{seconds * 1e3:.2f}", f"{lanes / seconds:,.0f}"])
    head = [
        "recipe",
        "lanes",
        "GB weights",
        "GB keys, values",
        "GB loaded by kernels",
        "least ms",
        "most tokens/s",
    ]
    print_table(f"Decoding on an H100 with {DECODED_COLUMNS:,} columns in use, counted", head, rows)


def main() -> None:
    """Print all tables."""
    print_steps()
    print_kernels()
    print_memory()
    print_generation()


if __name__ == "__main__":
    main()
