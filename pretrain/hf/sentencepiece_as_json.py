"""A SentencePiece model of permcode's as Hugging Face's `tokenizer.json`.

BPE models give the same ids for every text without U+2581, which both libraries write for a space: permcode keeps the
two apart by three byte tokens, Hugging Face's file cannot. Unigram models differ in two ways more. Where two
segmentations are about equally likely, the one taken hangs on how sums are rounded, in float32 by SentencePiece and in
float64 by tokenizers. And text that spells the name of a special token or of a byte ("<0x1F>") is taken for it where a
character of that name is not in the vocabulary.
"""

import math
from collections.abc import Mapping
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.sentencepiece_encoders import META_SPACE

_NEVER = -1e6
"""Far below every learned score: the library looks for all pieces in text, also for the names of special tokens
and of bytes, which SentencePiece does not."""


def sentencepiece_as_json(model: bytes, kind: str) -> bytes:
    """`model` is the content of a `.model` file trained by prep, `kind` as in `TokenizerConfig.kind`."""
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
    # SentencePiece cuts these out before it looks at scores.
    tabs = [piece for piece in scores if not piece.strip("\t")]
    tokenizer.add_tokens([AddedToken(tab, normalized=False) for tab in tabs])
    content: str = tokenizer.to_str()
    return content.encode()


def _bpe(pieces: list[str], scores: Mapping[str, float]) -> Any:
    """Every way to put a piece together from two others is a merge, and better pieces are made first."""
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
