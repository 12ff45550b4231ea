"""Prepared corpora written without Ray, of a few standard library modules, and a tiny model."""

import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from cluster.storage import sha256_bytes, write_bytes
from data_prep.documents import DocumentMeta
from data_prep.finished.manifest import Manifest, Shard, ShardIndex, write_manifest
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from data_prep.steps.shards import Sample, write_tar
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer

Packages = Mapping[str, Mapping[str, str]]

_STDLIB = Path(tarfile.__file__).parent
_LANGUAGES = {".py": "Python", ".java": "Java"}


def write_corpus(
    folder: Path, splits: Mapping[str, Packages], block_docs: int | None = None
) -> PreparedCorpus:
    """A prep folder of {split: {package: {path: text}}}: one block per split, or one per `block_docs` documents."""
    texts = [text for split in splits.values() for files in split.values() for text in files.values()]
    content = train_tokenizer((text.encode() for text in texts), TokenizerConfig(vocab_size=700))
    write_bytes(folder / "tokenizer.json", content)
    tokenizer = CodeTokenizer.load(folder / "tokenizer.json")
    shards = {
        split: _write_shard(folder, split, packages, tokenizer, block_docs)
        for split, packages in splits.items()
    }
    manifest = Manifest(
        config_sha256="0" * 64,
        seed=0,
        tokenizer_sha256=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        ledger_sha256="0" * 64,
        sources={},
        splits={split: (shard,) for split, shard in shards.items()},
    )
    write_manifest(folder, manifest)
    return open_prepared(folder)


def _write_shard(
    folder: Path, split: str, packages: Packages, tokenizer: CodeTokenizer, block_docs: int | None
) -> Shard:
    metas, arrays = [], []
    for package, files in packages.items():
        for path, text in files.items():
            data = text.encode()
            language = _LANGUAGES.get(Path(path).suffix, "Markdown")
            metas.append(
                DocumentMeta(
                    sha256_bytes(path.encode()),
                    "here",
                    package,
                    path,
                    language,
                    None,
                    sha256_bytes(data),
                    len(data),
                )
            )
            arrays.append(np.append(tokenizer.encode(text), np.uint16(tokenizer.eod_id)))
    name = f"{split}-00000"
    tar_path = folder / "shards" / f"{name}.tar"
    each = block_docs or len(metas)
    samples = [
        Sample(f"{name}-{first:05d}", arrays[first : first + each], metas[first : first + each])
        for first in range(0, len(metas), each)
    ]
    blocks, tar_sha256 = write_tar(tar_path, samples)
    index = ShardIndex(blocks=blocks).model_dump_json().encode()
    write_bytes(folder / "shards" / f"{name}.index.json", index)
    return Shard(
        name=name,
        source="here",
        num_blocks=len(blocks),
        num_docs=sum(block.num_docs for block in blocks),
        num_tokens=sum(block.num_tokens for block in blocks),
        num_text_bytes=sum(block.num_text_bytes for block in blocks),
        tar_bytes=tar_path.stat().st_size,
        tar_sha256=tar_sha256,
        index_sha256=sha256_bytes(index),
    )


def stdlib_packages(modules: Sequence[str]) -> Packages:
    return {name: {f"{name}.py": (_STDLIB / f"{name}.py").read_text(encoding="utf-8")} for name in modules}


def tiny_model(vocab_size: int, dropout: float = 0.0) -> TwoStreamTransformer:
    torch.manual_seed(0)
    shape = ModelConfig(
        num_layers=2, model_dim=32, num_heads=2, head_dim=16, ffn_dim=64, memory_tokens=32, dropout=dropout
    )
    return TwoStreamTransformer(shape, vocab_size)
