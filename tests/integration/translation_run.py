"""A small translation task: getters in two languages that nobody speaks, and a pretrained model with random weights."""

from pathlib import Path

import torch

from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

_WORDS = ("size", "count", "total", "index", "width", "height", "depth", "rank")
_TRAINING = (
    "steps: 12, batch_tokens: 256, warmup_steps: 2, evaluate_every_steps: 4, valid_items: 8, precision: fp32"
)
_SYSTEMS = """
  copy: {kind: copy}
  pretrained: {kind: permutation_lm, source_tokens: 32, target_tokens: 24}
  rnn: {kind: aligned_rnn, source_tokens: 32, target_tokens: 24}
"""


def write_base(folder: Path) -> Path:
    """Return the folder of the model."""
    corpus = write_corpus(folder / "prep", {"train": stdlib_packages(["string"])})
    torch.manual_seed(0)
    network = tiny_model(corpus.tokenizer.vocab_size, dropout=0.1)
    save_model(network, folder / "model", corpus.folder / "tokenizer.json")
    return folder / "model"


def write_pairs(folder: Path) -> Path:
    """Write the splits to `folder` and return it."""
    for split, numbers in (("train", range(0, 40)), ("valid", range(40, 48)), ("test", range(48, 60))):
        names = [f"{_WORDS[number % 8]}_{number}" for number in numbers]
        (folder / f"{split}.old").write_text("".join(f"get {name} end\n" for name in names))
        (folder / f"{split}.new").write_text("".join(f"return {name}\n" for name in names))
    return folder


def finetune_words(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    """Write the recipe beside `out` and return the arguments of `permcode` for it."""
    recipe = out.parent / f"{out.name}.yaml"
    recipe.write_text(
        f"""
task: {{kind: translation, folder: {data}, train: "train.{{side}}", valid: "valid.{{side}}", test: "test.{{side}}",
        source: old, target: new}}
systems: {_SYSTEMS}
training: {{{_TRAINING}}}
training_of: {{rnn: {{learning_rates: [0.001, 0.004]}}}}
"""
    )
    return ["finetune", "--recipe", str(recipe), "--from", str(model), "--out", str(out), *more]
