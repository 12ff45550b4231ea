"""Time the peers' stages over a sample of the corpus, in the peers' own environment (`benchmarks/peers.txt`).

.venv-bench/bin/python -m benchmarks.prep_peers PEER CORPUS --max-mb 8 [--tokenizer tokenizer.json]
"""

import argparse
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from benchmarks.prep_timing import Sample, load_sample, time_passes, use_one_core

Work = Callable[[], str]
SetUp = Callable[[Sample, Path | None], Work]
_NUM_HASHES = 256
_NGRAM_WORDS = 5
_NOT_WORD = re.compile(r"[^A-Za-z_0-9]")
_ENCODED = (
    re.compile(r"[a-zA-Z0-9+/\n=]{64,}"),
    re.compile(r"(?:\b(?:0x|\\x)?[0-9a-fA-F]{2}(?:,|\b\s*)){8,}"),
    re.compile(r"(?:\\u[0-9a-fA-F]{4}){8,}"),
)


class _VisibleText(HTMLParser):
    """Counts the characters of the text that a browser would show."""

    def __init__(self) -> None:
        super().__init__()
        self.num_chars = 0
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if self._hidden <= 0:
            self.num_chars += len(data.strip())


def _basic_rules_keep(text: str, suffix: str) -> bool:
    """Apply StarCoder's published rules in plain Python: line lengths, alphanumeric share, XML, HTML, JSON, YAML."""
    lengths = [len(line) for line in text.splitlines()] or [0]
    if suffix not in (".md", ".rst") and (max(lengths) > 1000 or sum(lengths) / len(lengths) > 100):
        return False
    if sum(map(str.isalnum, text)) / len(text) < 0.25 or "<?xml version=" in text[:100]:
        return False
    if suffix == ".html":
        parser = _VisibleText()
        parser.feed(text)
        return parser.num_chars >= 100 and parser.num_chars / len(text) > 0.2
    return suffix not in (".json", ".yaml", ".yml") or 50 <= len(text) <= 5000


def _is_encoded(text: str) -> bool:
    """Return whether StarCoder2's published rule rejects a text: one long run of encoded data, or half of the file."""
    for pattern in _ENCODED:
        runs = [len(match.group()) for match in pattern.finditer(text)]
        if runs and (max(runs) > 1024 or sum(runs) > 0.5 * len(text)):
            return True
    return False


def bigcode_basic(sample: Sample, _: Path | None) -> Work:
    """Return a call of the line, share and file-type rules."""

    def work() -> str:
        kept = [
            _basic_rules_keep(text.decode(), path.suffix)
            for path, text in zip(sample.paths, sample.texts, strict=True)
        ]
        return f"kept {sum(kept)}"

    return work


def bigcode_encoded(sample: Sample, _: Path | None) -> Work:
    """Return a call of the same rules and StarCoder2's rules for encoded data."""

    def work() -> str:
        kept = [
            _basic_rules_keep(data, path.suffix) and not _is_encoded(data)
            for path, data in zip(sample.paths, (text.decode() for text in sample.texts), strict=True)
        ]
        return f"kept {sum(kept)}"

    return work


def detect_secrets(sample: Sample, _: Path | None) -> Work:
    """Return a call of detect-secrets with its default plugins and filters, file by file; it reads the files itself."""
    from detect_secrets import SecretsCollection
    from detect_secrets.settings import default_settings

    def work() -> str:
        with default_settings():
            found = SecretsCollection()
            for path in sample.paths:
                found.scan_file(str(path))
        return f"found {sum(1 for _ in found)}"

    return work


def hf_tokenizers(sample: Sample, tokenizer: Path | None) -> Work:
    """Return a call of HF tokenizers in batches of 1,000 texts, its fast way."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    encoder.encode_special_tokens = True  # their text in a file is encoded as ordinary text, as ours does

    def work() -> str:
        num_tokens = 0
        for start in range(0, len(sample.texts), 1000):
            texts = [text.decode() for text in sample.texts[start : start + 1000]]
            encodings = encoder.encode_batch_fast(texts, add_special_tokens=False)
            num_tokens += sum(len(encoding.ids) for encoding in encodings)
        return f"{num_tokens} tokens"

    return work


def tiktoken(sample: Sample, tokenizer: Path | None) -> Work:
    """Return a call of tiktoken with the same vocabulary, merges and pattern."""
    from benchmarks.prep_tiktoken import tiktoken_encoding

    assert tokenizer is not None
    encoder = tiktoken_encoding(tokenizer)

    def work() -> str:
        return f"{sum(len(encoder.encode_to_numpy(text.decode())) for text in sample.texts)} tokens"

    return work


def _shingles(text: bytes) -> list[str]:
    words = [word for word in _NOT_WORD.split(text.decode()) if word]
    return list({" ".join(words[i : i + _NGRAM_WORDS]) for i in range(len(words) - _NGRAM_WORDS + 1)})


def datasketch(sample: Sample, _: Path | None) -> Work:
    """Return a call of BigCode's recipe: a regex splits words, datasketch hashes 5-grams to 256 minima."""
    from datasketch import MinHash

    def work() -> str:
        for text in sample.texts:
            signature = MinHash(num_perm=_NUM_HASHES)
            signature.update_batch([shingle.encode() for shingle in _shingles(text)])
        return f"{len(sample.texts)} signatures"

    return work


def rensa(sample: Sample, _: Path | None) -> Work:
    """Return a call that hashes the same words and 5-grams with rensa."""
    from rensa import RMinHash

    def work() -> str:
        for text in sample.texts:
            signature = RMinHash(num_perm=_NUM_HASHES, seed=1)
            signature.update(_shingles(text))
            signature.digest()
        return f"{len(sample.texts)} signatures"

    return work


def datatrove(sample: Sample, _: Path | None) -> Work:
    """Return a call of datatrove's signature step with its own defaults (112 hashes), without its files."""
    from datatrove.pipeline.dedup import MinhashDedupSignature

    step = MinhashDedupSignature("/nowhere/signatures")

    def work() -> str:
        num_signed = 0
        for text in sample.texts:
            shingles = step.get_shingles(text.decode())
            if shingles.size:
                step.get_signature(shingles)
                num_signed += 1
        return f"{num_signed} signatures"

    return work


PEERS: dict[str, SetUp] = {
    "bigcode": bigcode_basic,
    "bigcode+encoded": bigcode_encoded,
    "detect-secrets": detect_secrets,
    "tokenizers": hf_tokenizers,
    "tiktoken": tiktoken,
    "datasketch": datasketch,
    "rensa": rensa,
    "datatrove": datatrove,
}


def main() -> None:
    """Time one peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--max-mb", type=float, default=8)
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    use_one_core()
    sample = load_sample(arguments.corpus, int(arguments.max_mb * 1e6))
    time_passes(sample, PEERS[arguments.peer](sample, arguments.tokenizer)).print()


if __name__ == "__main__":
    main()
