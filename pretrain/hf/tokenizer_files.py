"""Tokenizers in a folder of Hugging Face's format: permcode's are converted, others are kept unchanged.

BPE models give the same ids for every text without U+2581, which both libraries write for a space: permcode keeps the
two apart by three byte tokens, Hugging Face's file cannot. Unigram models differ in two ways more. Where two
segmentations are about equally likely, the one taken hangs on how sums are rounded, in float32 by SentencePiece and in
float64 by tokenizers. And text that spells the name of a special token or of a byte ("<0x1F>") is taken for it where a
character of that name is not in the vocabulary.
"""

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from cluster.errors import UserError
from cluster.storage import write_bytes, write_json
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.sentencepiece_models import META_SPACE

_NEVER = -1e6
"""Far below every learned score: the library looks for all pieces in text, also for the names of special tokens
and of bytes, which SentencePiece does not."""


def sentencepiece_as_json(model: bytes, kind: str) -> bytes:
    """Convert `model`, the content of a `.model` file trained by prep; `kind` is as in `TokenizerConfig.kind`."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    in_text = [
        number
        for number in range(len(SPECIAL_TOKENS), len(pieces))
        if not processor.is_byte(number) and not processor.is_control(number)
    ]
    scores = {pieces[number]: float(processor.get_score(number)) for number in in_text}
    if kind == "sentencepiece_bpe":
        library_model = _bpe(pieces, scores)
    else:
        scored = [(piece, scores.get(piece, _NEVER)) for piece in pieces]
        library_model = models.Unigram(scored, unk_id=processor.unk_id(), byte_fallback=True)
    tokenizer = Tokenizer(library_model)
    tokenizer.normalizer = normalizers.Replace(" ", META_SPACE)
    spaces = decoders.Replace(META_SPACE, " ")
    tokenizer.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    # SentencePiece splits at these before it uses scores.
    tabs = [piece for piece in scores if not piece.strip("\t")]
    tokenizer.add_tokens([AddedToken(tab, normalized=False) for tab in tabs])
    content: str = tokenizer.to_str()
    return content.encode()


def _bpe(pieces: list[str], scores: Mapping[str, float]) -> Any:
    """Return a BPE model in which every split of a piece into two pieces is a merge, those of better pieces first."""
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [
        (-score, vocabulary[piece[:cut]], vocabulary[piece[cut:]], piece[:cut], piece[cut:])
        for piece, score in scores.items()
        if piece.strip("\t") and math.isfinite(score)
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ordered = [(left, right) for *_, left, right in sorted(merges)]
    return models.BPE(vocabulary, ordered, fuse_unk=True, byte_fallback=True)


THEIR_FILE = "tokenizer.json"
OUR_FILE = "permcode_tokenizer.json"
"""permcode's own file of a SentencePiece model, which is not in Hugging Face's format."""

FOREIGN_FOLDER = "hf_tokenizer"
"""The subfolder of a model folder for the files of a tokenizer that permcode cannot use."""
_FOREIGN_FILES = (
    # The ids of the padding and end tokens.
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)


def write_tokenizer(source: Path, folder: Path) -> None:
    """Write permcode's tokenizer for `transformers.AutoTokenizer`, with the same ids for the same text.

    Text that spells a special token remains ordinary text, as in permcode, unless the library is called with
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
    """Write a model folder's `tokenizer.json` from a folder in Hugging Face's format; return whether it is usable.

    A foreign tokenizer's files are kept beside it, for an export; text commands then refuse the model in one line.
    `expected_sha256` is that of permcode's own file, where the source's config names it. Raises UserError when that
    file is another one, or has another number of tokens than the model.
    """
    if (source / OUR_FILE).is_file():
        _check(source / OUR_FILE, vocab_size, expected_sha256)
        write_bytes(folder / THEIR_FILE, (source / OUR_FILE).read_bytes())
        return True
    if is_ours(source / THEIR_FILE):
        # Not compared with the expected file: the library may have rewritten it with the same content.
        _check(source / THEIR_FILE, vocab_size, None)
        write_bytes(folder / THEIR_FILE, (source / THEIR_FILE).read_bytes())
        return True
    for name in _FOREIGN_FILES:
        if (source / name).is_file():
            write_bytes(folder / FOREIGN_FOLDER / name, (source / name).read_bytes())
    # A tokenizer without tokens: readers of a model folder find a file that is not permcode's.
    write_bytes(folder / THEIR_FILE, Tokenizer(models.BPE()).to_str().encode())
    return False


def is_ours(path: Path) -> bool:
    """Return whether a `tokenizer.json` is byte-level BPE with permcode's special tokens at their ids."""
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
