"""Tracing of a token back to the line of its source file."""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from cluster.errors import UserError
from data_prep.documents import DocumentMeta
from data_prep.finished.prepared import Block, BlockEntry, PreparedCorpus


@dataclass(frozen=True)
class TextPlace:
    """A place in a document's text.

    `line` and `column` count from 1, columns in characters; `text` is the line without its end.
    """

    line: int
    column: int
    text: str


@dataclass(frozen=True)
class TracedTokens:
    """Consecutive tokens of one document.

    There are `num_tokens` from position `token_in_block` of the block and `token_in_document` of the document. `first`
    is where the first of them begins, `last` where the last one begins. Lines are those of the stored text, in which
    line ends are normalised and secrets redacted.
    """

    block: BlockEntry
    document: DocumentMeta
    token_in_block: int
    token_in_document: int
    num_tokens: int
    is_end_of_document: bool
    first: TextPlace
    last: TextPlace


def trace_token(corpus: PreparedCorpus, split: str, token: int) -> TracedTokens:
    """Trace the token at position `token` of a split, whose blocks are counted in the order of the tars.

    UserError when there is no such split or position, or the block is damaged.
    """
    if split not in corpus.manifest.splits:
        known = ", ".join(corpus.manifest.splits)
        raise UserError(f"{corpus.folder} has no split '{split}': choose one of {known}")
    entries = corpus.blocks(split)
    starts = np.concatenate(
        [[0], np.cumsum([entry.num_tokens for entry in entries], dtype=np.int64)]
    ).tolist()
    if not entries:
        others = ", ".join(name for name in corpus.manifest.splits if corpus.blocks(name)) or "another folder"
        raise UserError(f"{corpus.folder}: split '{split}' is empty: choose one of {others}")
    if not 0 <= token < starts[-1]:
        raise UserError(
            f"{corpus.folder}: split '{split}' has no token {token}: give a position from 0 to {starts[-1] - 1}"
        )
    number = bisect_right(starts, token) - 1
    return trace_range(corpus, entries[number], token - starts[number], 1)[0]


def trace_range(corpus: PreparedCorpus, entry: BlockEntry, start: int, num_tokens: int) -> list[TracedTokens]:
    """Trace tokens `start` to `start + num_tokens` of a block, document by document. UserError when it is damaged."""
    block = corpus.read_block(entry)
    doc_starts = block.doc_starts.tolist()
    end = start + num_tokens
    found = []
    while start < end:
        number = bisect_right(doc_starts, start) - 1
        doc_end = doc_starts[number + 1] if number + 1 < len(doc_starts) else len(block.tokens)
        stop = min(end, doc_end)
        found.append(
            _trace(corpus, entry, block, number, range(start - doc_starts[number], stop - doc_starts[number]))
        )
        start = stop
    return found


def _trace(
    corpus: PreparedCorpus, entry: BlockEntry, block: Block, number: int, tokens: range
) -> TracedTokens:
    """Trace `tokens`, which are positions in document `number`."""
    ids = block.document_tokens(number)
    text = corpus.tokenizer.decode_bytes(ids)
    ends = np.concatenate([[0], np.cumsum(corpus.tokenizer.token_bytes[ids])])
    return TracedTokens(
        block=entry,
        document=block.docs[number],
        token_in_block=int(block.doc_starts[number]) + tokens.start,
        token_in_document=tokens.start,
        num_tokens=len(tokens),
        is_end_of_document=tokens.stop == len(ids),
        first=text_place(text, int(ends[tokens.start])),
        last=text_place(text, int(ends[tokens.stop - 1])),
    )


def text_place(text: bytes, offset: int) -> TextPlace:
    """Return the place of byte `offset`; a byte within a character has the place of the character."""
    line_start = text.rfind(b"\n", 0, offset) + 1
    line_end = text.find(b"\n", offset)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    before = text[line_start:offset].decode(errors="ignore")
    return TextPlace(text.count(b"\n", 0, offset) + 1, len(before) + 1, line.decode(errors="replace"))
