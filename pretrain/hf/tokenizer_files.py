"""Tokenizers in a folder of Hugging Face's format: permcode's written and found again, others kept as they are."""

import base64
import json
from pathlib import Path

from tokenizers import Tokenizer, models

from cluster.errors import UserError
from cluster.storage import write_bytes, write_json
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizer import CodeTokenizer
from pretrain.hf.sentencepiece_as_json import sentencepiece_as_json

THEIR_FILE = "tokenizer.json"
OUR_FILE = "permcode_tokenizer.json"
"""permcode's own file, where it is not in Hugging Face's format: a SentencePiece model."""

FOREIGN_FOLDER = "hf_tokenizer"
"""Where a model folder keeps the files of a tokenizer that permcode cannot use."""
_FOREIGN_FILES = (
    # Which tokens pad and end, by their ids.
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)


def write_tokenizer(source: Path, folder: Path) -> None:
    """permcode's tokenizer file as one that `transformers.AutoTokenizer` reads, with the same ids for the same text.

    Text that spells a special token stays ordinary text, as it is here, unless the library is told
    `split_special_tokens=False`.
    """
    data, tokenizer = source.read_bytes(), CodeTokenizer.load(source)
    if tokenizer.kind == "bpe":
        write_bytes(folder / THEIR_FILE, data)
    else:
        model = base64.b64decode(json.loads(data)["model"])
        write_bytes(folder / THEIR_FILE, sentencepiece_as_json(model, tokenizer.kind))
        write_bytes(folder / "spiece.model", model)
        write_bytes(folder / OUR_FILE, data)
    named = {"pad_token": "<pad>", "eos_token": "<eod>", "sep_token": "<sep>", "mask_token": "<mask>"}
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **named,
            "additional_special_tokens": [token for token in SPECIAL_TOKENS if token not in named.values()],
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "padding_side": "left",
        },
    )


def take_tokenizer(source: Path, vocab_size: int, expected_sha256: str | None, folder: Path) -> bool:
    """Give a model folder the `tokenizer.json` of a folder in Hugging Face's format, and say whether it is usable.

    A foreign tokenizer's files are kept beside it, for an export; text commands then refuse the model in one line.
    `expected_sha256` is that of permcode's own file, where the source's config names it. Raises UserError when that
    file is another one, or has another number of tokens than the model.
    """
    if (source / OUR_FILE).is_file():
        _check(source / OUR_FILE, vocab_size, expected_sha256)
        write_bytes(folder / THEIR_FILE, (source / OUR_FILE).read_bytes())
        return True
    if is_ours(source / THEIR_FILE):
        # Not compared with the expected file: the library may have written it anew, with the same content.
        _check(source / THEIR_FILE, vocab_size, None)
        write_bytes(folder / THEIR_FILE, (source / THEIR_FILE).read_bytes())
        return True
    for name in _FOREIGN_FILES:
        if (source / name).is_file():
            write_bytes(folder / FOREIGN_FOLDER / name, (source / name).read_bytes())
    # A tokenizer of no tokens: every reader of a model folder finds the file, and that it is not permcode's.
    write_bytes(folder / THEIR_FILE, Tokenizer(models.BPE()).to_str().encode())
    return False


def is_ours(path: Path) -> bool:
    """Whether a `tokenizer.json` is byte-level BPE with permcode's special tokens at their ids."""
    if not path.is_file():
        return False
    try:
        CodeTokenizer.load(path)
    except UserError:
        return False
    return True


def _check(path: Path, vocab_size: int, expected_sha256: str | None) -> None:
    tokenizer = CodeTokenizer.load(path)
    if expected_sha256 is not None and tokenizer.fingerprint != expected_sha256:
        raise UserError(
            f"{path} is not the tokenizer that config.json names (its SHA-256 differs): restore it"
        )
    if tokenizer.vocab_size != vocab_size:
        raise UserError(
            f"{path} has {tokenizer.vocab_size} tokens and the model {vocab_size}: they do not belong together"
        )
