"""Train the tokenizer that `make bench-prep` uses for our stages and the peers'.

python -m benchmarks.prep_tokenizer CORPUS tokenizer.json [--vocab-size 32768]
"""

import argparse
from pathlib import Path

from benchmarks.prep_timing import load_sample
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizers.config import TokenizerConfig


def main() -> None:
    """Train on a sample of prep's default size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--vocab-size", type=int, default=32_768)
    arguments = parser.parse_args()
    config = TokenizerConfig(vocab_size=arguments.vocab_size)
    sample = load_sample(arguments.corpus, config.sample_bytes)
    arguments.tokenizer.write_bytes(train_tokenizer(sample.texts, config))


if __name__ == "__main__":
    main()
