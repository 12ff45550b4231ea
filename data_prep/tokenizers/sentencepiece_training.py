"""Training of SentencePiece models."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping

import sentencepiece
from tokenizers import Regex, pre_tokenizers

from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.sentencepiece_encoders import META_SPACE
from data_prep.tokenizers.sentencepiece_file import wrap
from data_prep.tokenizers.splits import training_split

# Tabs cannot be learned, because the trainer's input uses the character; runs of tabs are predefined instead.
_TAB_RUNS = (4, 3, 2, 1)
# Share of the text whose characters get their own token, most frequent first; the rest are encoded as bytes.
_CHARACTER_COVERAGE = 0.9995


def train_sentencepiece(texts: Iterable[str], config: TokenizerConfig) -> bytes:
    """Train on `texts` and return the content of permcode's `tokenizer.json` with a SentencePiece model.

    Characters that the vocabulary lacks become byte tokens; there is no normalisation and no added space. The rules of
    `config` apply to every learned token; encoding does not split text first, so it may not group digits from the left.
    """
    tabs = ["\t" * run for run in _TAB_RUNS if run <= config.max_whitespace_run]
    room = config.vocab_size - len(SPECIAL_TOKENS) - 256 - len(tabs)
    pieces = _keep_frequent_characters(_count_pieces(texts, config), max_characters=room // 2)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{piece}\t{count}" for piece, count in pieces),
        input_format="tsv",
        model_writer=model,
        model_type=config.kind.removeprefix("sentencepiece_"),
        vocab_size=config.vocab_size,
        hard_vocab_limit=False,
        pad_id=0,
        pad_piece=SPECIAL_TOKENS[0],
        control_symbols=list(SPECIAL_TOKENS[1:-1]),
        # The library requires an unknown token. With byte tokens nothing is ever unknown.
        unk_id=len(SPECIAL_TOKENS) - 1,
        unk_piece=SPECIAL_TOKENS[-1],
        bos_id=-1,
        eos_id=-1,
        user_defined_symbols=tabs,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_by_unicode_script=False,
        split_by_number=False,
        split_digits=False,
        max_sentencepiece_length=config.max_token_bytes,
        max_sentence_length=1 << 30,
        # Several threads would add sums in varying order, which changes the last digits.
        num_threads=1,
        minloglevel=2,
    )
    return wrap(config.kind, model.getvalue())


def _count_pieces(texts: Iterable[str], config: TokenizerConfig) -> Counter[str]:
    cuts = pre_tokenizers.Split(Regex(training_split(config)), behavior="isolated")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(piece for piece, _ in cuts.pre_tokenize_str(text))
    pieces: Counter[str] = Counter()
    for piece, count in counts.items():
        # Characters that the trainer uses as its own marks cannot be learned.
        if not {"\t", "\0", META_SPACE} & set(piece):
            for part in _split_piece(piece, config.max_token_bytes):
                pieces[part] += count
    return pieces


def _split_piece(piece: str, max_bytes: int) -> list[str]:
    """Split the piece into parts of at most `max_bytes` of UTF-8, each as long as possible."""
    if len(piece.encode()) <= max_bytes:
        return [piece]
    parts, num_bytes = [""], 0
    for character in piece:
        size = len(character.encode())
        if num_bytes + size > max_bytes:
            parts.append("")
            num_bytes = 0
        parts[-1] += character
        num_bytes += size
    return parts


def _keep_frequent_characters(counts: Mapping[str, int], max_characters: int) -> list[tuple[str, int]]:
    """Return the pieces that consist of frequent characters only, in an order that depends only on the counts."""
    characters: Counter[str] = Counter()
    for piece, count in counts.items():
        for character in piece:
            characters[character] += count
    # Without a token for the space, a space would be encoded as the bytes of the mark that represents it.
    kept = {" "}
    total, seen = characters.total(), 0
    for character, count in sorted(characters.items(), key=lambda one: (-one[1], one[0])):
        if seen >= _CHARACTER_COVERAGE * total or len(kept) >= max_characters:
            break
        kept.add(character)
        seen += count
    pieces = [(piece, count) for piece, count in counts.items() if kept.issuperset(piece)]
    return sorted([*pieces, (" ", 1)], key=lambda one: (-one[1], one[0]))
