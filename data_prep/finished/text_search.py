"""Search of a finished corpus: the documents that contain a text, byte for byte."""

from collections.abc import Callable
from dataclasses import dataclass

from data_prep.documents import DocumentMeta
from data_prep.finished.prepared import Block, PreparedCorpus
from data_prep.finished.trace import TextPlace, text_place


@dataclass(frozen=True)
class FoundDocument:
    """A document that contains the text, how often, and where it is first."""

    split: str
    meta: DocumentMeta
    num_places: int
    first: TextPlace


@dataclass(frozen=True)
class Found:
    """The documents that contain a text. `is_all`: no other document of the corpus does."""

    documents: tuple[FoundDocument, ...]
    num_searched: int
    num_documents: int
    is_all: bool


def find_text(
    corpus: PreparedCorpus, text: bytes, most: int, must_stop: Callable[[], bool] = lambda: False
) -> Found:
    """Return the first `most` documents that contain `text`, those of training first, in the order of the tars.

    Every block is read and decoded, so the time grows with the corpus: `must_stop` is asked before each one. Raises
    UserError when a block is damaged.
    """
    splits = sorted(corpus.manifest.splits, key=lambda split: split != "train")
    entries = [(split, entry) for split in splits for entry in corpus.blocks(split)]
    num_documents = sum(entry.num_docs for _, entry in entries)
    found: list[FoundDocument] = []
    num_searched = 0
    for split, entry in entries:
        if must_stop() or len(found) >= most:
            break
        block = corpus.read_block(entry)
        in_block = _in_block(corpus, split, block, text, most - len(found))
        num_searched += in_block.num_searched
        found += in_block.documents
    return Found(tuple(found), num_searched, num_documents, num_searched == num_documents)


def _in_block(corpus: PreparedCorpus, split: str, block: Block, text: bytes, most: int) -> Found:
    num_documents = len(block.doc_starts)
    found: list[FoundDocument] = []
    # Most blocks do not have it at all, which is seen without a look at each document.
    if text not in corpus.tokenizer.decode_bytes(block.tokens):
        return Found((), num_documents, num_documents, is_all=True)
    for number in range(num_documents):
        if len(found) == most:
            return Found(tuple(found), number, num_documents, is_all=False)
        whole = corpus.tokenizer.decode_bytes(block.document_tokens(number))
        if (first := whole.find(text)) >= 0:
            found.append(
                FoundDocument(split, block.docs[number], whole.count(text), text_place(whole, first))
            )
    return Found(tuple(found), num_documents, num_documents, is_all=True)
