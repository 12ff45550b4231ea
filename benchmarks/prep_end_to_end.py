"""Compare the whole of prep with datatrove's, on one core and the same files: part of `make bench-prep`.

    python -m benchmarks.prep_end_to_end CORPUS --peers .venv-bench/bin/python --tokenizer tokenizer.json

The two run in turn; medians are printed. permcode also trains its tokenizer, while datatrove gets a trained one;
permcode's rate is printed with and without that step. Both write to the same disk and read texts from the page cache.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.prep_growth import run_pipeline
from benchmarks.prep_pipeline import PipelineTiming
from benchmarks.prep_speed import run_one
from benchmarks.prep_timing import Timing

_TRAINING = "train tokenizer"
_WITH_PARSING = "filters.max_parse_error_share=0.5"


def without_training(timing: PipelineTiming) -> float:
    """Return million bytes per CPU second without the tokenizer's training."""
    training_s = sum(step.cpu_s for step in timing.steps if step.label == _TRAINING)
    return timing.num_bytes / 1e6 / (timing.cpu_s - training_s)


def run_datatrove(arguments: argparse.Namespace) -> Timing:
    """Run the peer once."""
    with tempfile.TemporaryDirectory(prefix="permcode-bench-") as folder:
        common = [
            str(arguments.corpus),
            "--max-mb",
            str(arguments.max_mb),
            "--tokenizer",
            str(arguments.tokenizer),
        ]
        return run_one(
            [
                str(arguments.peers),
                "-m",
                "benchmarks.prep_peer_pipeline",
                *common,
                "--folder",
                f"{folder}/datatrove",
            ]
        )


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--peers", type=Path, required=True, help="the python of the peers' environment")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--max-mb", type=float, default=150)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    peers, ours = [], []
    for _ in range(arguments.rounds):
        peers.append(run_datatrove(arguments))
        ours.append(run_pipeline(arguments.corpus, arguments.max_mb))
    parsing = run_pipeline(arguments.corpus, arguments.max_mb, "--set", _WITH_PARSING)
    peer = statistics.median(timing.mb_per_s for timing in peers)
    whole = statistics.median(timing.mb_per_cpu_s for timing in ours)
    rest = statistics.median(without_training(timing) for timing in ours)
    first = ours[0]
    print(
        f"end to end on {first.num_files:,} files, {first.num_bytes / 1e6:.1f} MB, {arguments.rounds} rounds:"
    )
    print(f"  datatrove              {peer:>6.2f} MB per CPU second  [{peers[0].result}]")
    print(f"  permcode               {whole:>6.2f} MB per CPU second, {whole / peer:.1f}x; target 10 and 10x")
    print(f"  less tokenizer's training {rest:>3.2f} MB per CPU second, {rest / peer:.1f}x")
    print(f"  with parsing, less it  {without_training(parsing):>6.2f} MB per CPU second ({_WITH_PARSING})")
    for step in first.steps:
        print(f"    {step.label:<36} {step.cpu_s:>6.2f} CPU s, {step.wall_s:>6.2f} s")
    print(
        f"    all {first.cpu_s:.2f} CPU s, {first.wall_s:.2f} s; Ray's start before it {first.session_start_s:.1f} s"
    )
    print(f"  {first.facts}")


if __name__ == "__main__":
    main()
