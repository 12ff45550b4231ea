"""Models of the same size on the same tokens by different objectives: `python -m benchmarks.objectives_train RUN OUT`.

The recipe `demo` is pretrained on the corpus of RUN, whose tokenizer all models share, with each of `OBJECTIVES` and
several seeds. Each objective has its own learning rate: the best of `RATES` in short runs of another seed, by bits per
byte from left to right of the validation split. OUT gets a folder per model, and `rates.json`; what is there is not
trained again. `python -m benchmarks.objectives` compares the models.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from cluster.ray_session import RayConfig, ray_session
from cluster.reporter import Reporter
from pipeline.folder.prep_folder import find_prep_folder
from pipeline.folder.recipe import load_run_config
from pretrain.stage import run_pretrain

OBJECTIVES: dict[str, Sequence[str]] = {
    "autoregressive": (
        "pretrain.model.context=causal",
        "pretrain.objective.target_share=1",
        "pretrain.objective.spans=0",
        "pretrain.objective.left_to_right=0.5",
        "pretrain.objective.infill=0",
        "pretrain.objective.fill_in_the_middle=0.5",
    ),
    "permutation": (),
    "several holes": ("pretrain.objective.infill=0", "pretrain.objective.holes=0.15"),
    "even": (
        "pretrain.objective.spans=1",
        "pretrain.objective.left_to_right=1",
        "pretrain.objective.infill=1",
    ),
}
"""What is changed in the recipe, by the name in tables."""
RATES = (0.002, 0.003, 0.0045)
SEARCH_STEPS, SEARCH_SEED = 600, 9


def model_folder(out: Path, objective: str, seed: int) -> Path:
    """Return the folder of a model."""
    return out / f"{objective.replace(' ', '_')}-seed-{seed}"


def train(out: Path, prep: Path, overrides: Sequence[str], seed: int, reporter: Reporter) -> float:
    """Pretrain, unless it was done; return the bits per byte from left to right."""
    config = load_run_config("demo", overrides).pretrain
    summary = run_pretrain(config, seed, prep, out, reporter)
    return float(summary["validation"]["model_bits_per_byte"])


def best_rate(out: Path, prep: Path, objective: str, reporter: Reporter) -> float:
    """Return the best rate of short runs, which `rates.json` remembers."""
    path = out / "rates.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if objective not in known:
        found = {}
        for rate in RATES:
            overrides = [
                *OBJECTIVES[objective],
                f"pretrain.schedule.peak_learning_rate={rate}",
                f"pretrain.num_steps={SEARCH_STEPS}",
            ]
            folder = model_folder(out / "search", f"{objective}-{rate}", SEARCH_SEED)
            found[str(rate)] = train(folder, prep, overrides, SEARCH_SEED, reporter)
        path.write_text(json.dumps(known | {objective: found}, indent=2))
        known = json.loads(path.read_text())
    rates: dict[str, float] = known[objective]
    return float(min(rates, key=rates.__getitem__))


def main() -> None:
    """Train all models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--objectives", nargs="+", choices=tuple(OBJECTIVES), default=list(OBJECTIVES))
    given = parser.parse_args()
    prep, reporter = find_prep_folder(given.run).prep, Reporter()
    with ray_session(RayConfig(num_cpus=2), given.out / "logs"):
        rates = {name: best_rate(given.out, prep, name, reporter) for name in given.objectives}
        for seed in range(given.seeds):
            for name, rate in rates.items():
                overrides = [*OBJECTIVES[name], f"pretrain.schedule.peak_learning_rate={rate}"]
                bits = train(model_folder(given.out, name, seed), prep, overrides, seed, reporter)
                print(f"{name}, seed {seed}, rate {rate}: {bits:.4f} bits per byte from left to right")


if __name__ == "__main__":
    main()
