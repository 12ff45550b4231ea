"""Compute weak scaling on paper: bytes on the wire, compute time and efficiency on 8 to 4,096 GPUs, by ZeRO stage.

    python -m benchmarks.scaling_on_paper --recipe large --gpu h100

Nothing is measured here. The assumptions (share of peak, network) are arguments and are printed.
"""

import argparse

from pipeline.folder.recipe import load_run_config, run_recipe_names
from pretrain.plan.hardware import find_gpu, flops_per_token
from pretrain.plan.parameters import count_parameters
from pretrain.plan.scaling import Network, ScaledStep, scaled_step

_NUM_GPUS = [2**power for power in range(3, 13)]


def main() -> None:
    arguments = _arguments()
    run = load_run_config(arguments.recipe)
    config, gpu = run.pretrain, find_gpu(arguments.gpu)
    vocab_size = run.prep.tokenizer.vocab_size
    num_parameters = count_parameters(config.model, vocab_size).total
    lanes_per_gpu = config.lanes // config.num_workers
    tokens = lanes_per_gpu * config.segment_tokens
    num_micro_batches = lanes_per_gpu // config.micro_batch_lanes
    compute_s = flops_per_token(config, vocab_size) * tokens / (arguments.mfu * gpu.peak_flops("bf16"))
    network = Network(arguments.gbytes_per_s * 1e9, arguments.hop_us * 1e-6)
    print(
        f"{arguments.recipe}: {num_parameters / 1e6:.0f} M parameters in bf16, {lanes_per_gpu} lanes x "
        f"{config.segment_tokens} tokens on each {gpu.name} in {num_micro_batches} micro-batches; assumed: "
        f"{arguments.mfu:.0%} of peak, {arguments.gbytes_per_s:g} GB/s per GPU, {arguments.hop_us:g} us a hop\n"
    )
    print(
        "| GPUs | tokens a step | compute ms | "
        + " | ".join(f"ZeRO {s}: MB, shown ms, %" for s in range(4))
        + " |"
    )
    print("| ---: " * 7 + "|")
    for num_gpus in _NUM_GPUS:
        steps = [
            scaled_step(num_parameters, num_gpus, stage, num_micro_batches, compute_s, network)
            for stage in range(4)
        ]
        cells = " | ".join(_cell(step) for step in steps)
        print(f"| {num_gpus:,} | {num_gpus * tokens / 1e6:.2f} M | {compute_s * 1e3:.0f} | {cells} |")


def _cell(step: ScaledStep) -> str:
    return f"{step.wire_bytes / 1e6:,.0f}, {step.shown_s * 1e3:.1f}, {step.efficiency:.0%}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="large", choices=run_recipe_names())
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--mfu", type=float, default=0.4)
    parser.add_argument("--gbytes-per-s", type=float, default=50.0, help="of one GPU, each way: 400 Gbit/s")
    parser.add_argument("--hop-us", type=float, default=5.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
