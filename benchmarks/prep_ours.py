"""Time our stages over a sample of the corpus, each as `permcode prep` calls it.

python -m benchmarks.prep_ours STAGE CORPUS --max-mb 8 [--tokenizer tokenizer.json]
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.prep_timing import Sample, load_sample, time_passes, use_one_core

Work = Callable[[], str]
SetUp = Callable[[Sample, Path | None], Work]
_BATCH_BYTES = 256 << 10


def _batches(texts: list[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    num_bytes = 0
    for text in texts:
        batch.append(text)
        num_bytes += len(text)
        if num_bytes >= _BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def filters(sample: Sample, _: Path | None) -> Work:
    """Return a call of all default rules over the files, with their language detected in advance."""
    from data_prep.filters.config import FiltersConfig
    from data_prep.filters.registry import first_rejection
    from data_prep.text.file import TextFile
    from data_prep.text.languages import detect_language

    config = FiltersConfig()
    named = [(text, str(path)) for path, text in zip(sample.paths, sample.texts, strict=True)]
    known = [(text, path, detect_language(path, text)) for text, path in named]

    def work() -> str:
        return f"kept {sum(first_rejection(TextFile(*facts), config) is None for facts in known)}"

    return work


def text(sample: Sample, _: Path | None) -> Work:
    """Return a call of the steps before the filters: decoding, newlines and language of raw files."""
    from data_prep.text.decoding import DecodedText, DecodingConfig, decode
    from data_prep.text.languages import detect_language

    config = DecodingConfig()

    def work() -> str:
        num_known = 0
        for path, data in zip(sample.paths, sample.texts, strict=True):
            decoded = decode(data, str(path), config)
            if isinstance(decoded, DecodedText):
                num_known += detect_language(str(path), decoded.data) is not None
        return f"{num_known} languages"

    return work


def secrets(sample: Sample, _: Path | None) -> Work:
    """Return a call that finds and redacts all kinds of secrets and personal data."""
    from data_prep.secrets.redact import redact

    def work() -> str:
        num_found = 0
        for path, data in zip(sample.paths, sample.texts, strict=True):
            num_found += sum(count for _, count in redact(data, str(path)).counts)
        return f"found {num_found}"

    return work


def tokenise(sample: Sample, tokenizer: Path | None) -> Work:
    """Return a call that encodes bytes to arrays of ids, in the batches of the shard writer."""
    from data_prep.tokenizer import CodeTokenizer

    assert tokenizer is not None
    encoder = CodeTokenizer.load(tokenizer)

    def work() -> str:
        num_tokens = 0
        for batch in _batches(sample.texts):
            num_tokens += sum(map(len, encoder.encode_bytes_batch(batch)))
        return f"{num_tokens} tokens by {encoder.encoder_name}"

    return work


def signatures(sample: Sample, _: Path | None) -> Work:
    """Return a call that computes words, 5-grams, 252 minima and their band keys."""
    from data_prep.dedup.config import NGRAM_WORDS
    from data_prep.dedup.signatures import band_keys
    from data_prep.text.shingles import hash_words, shingles

    def work() -> str:
        num_signed = 0
        for batch in _batches(sample.texts):
            num_signed += len(band_keys(shingles(hash_words(batch), NGRAM_WORDS)))
        return f"{num_signed} signatures"

    return work


STAGES: dict[str, SetUp] = {
    "text": text,
    "filters": filters,
    "secrets": secrets,
    "tokenise": tokenise,
    "signatures": signatures,
}


def main() -> None:
    """Time one stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--max-mb", type=float, default=8)
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    use_one_core()
    sample = load_sample(arguments.corpus, int(arguments.max_mb * 1e6))
    time_passes(sample, STAGES[arguments.stage](sample, arguments.tokenizer)).print()


if __name__ == "__main__":
    main()
