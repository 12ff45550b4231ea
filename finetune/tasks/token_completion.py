"""Token completion: predict the next token of a file. Evaluated as CodeXGLUE's CodeCompletion-token.

A token is right if all its pieces are the system's first choice given the true text before each, so that greedy
decoding would write it; its rank is the worst of its pieces' ranks. Comments stay in the text of source code as
context, but are not scored. Literals keep their own text, which makes them harder than CodeXGLUE's placeholders.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt, model_validator

from cluster.config import LocalPath
from cluster.errors import UserError
from data_prep.finished.prepared import open_prepared
from finetune.formats.files import read_lines
from finetune.formats.labelled import check_characters
from finetune.formats.records import read_records
from finetune.formats.spaced import spaced_lexemes, without_ends
from finetune.held_out import SPLIT_TO_TEST_ON, SPLIT_TO_TRAIN_ON, held_out_documents
from finetune.languages import grammar_name
from finetune.lexing import Lexeme, LexemeClass, grammar_lexemes, python_lexemes
from finetune.metrics.measured import Measured
from finetune.metrics.tokens import token_accuracy, token_mrr
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.predicting import Code, PredictingData
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.published import Published, whole_words
from finetune.tasks.splits import drawn, held_out, learnt_and_chosen_by
from pretrain.randomness import keyed_generator

_MOST_OF_CORPUS = {SPLIT_TO_TRAIN_ON: 20_000, SPLIT_TO_TEST_ON: 1_000}
_Lexer = Callable[[str], list[Lexeme]]


class TokenCompletionConfig(TaskConfigBase):
    """The settings of token completion. Without `test`, the texts are documents of a corpus' held-out repositories."""

    modality: ClassVar[ModalityName] = "predict"

    kind: Literal["token_completion"] = "token_completion"
    folder: LocalPath | None = None
    """The folder of the files."""
    train: str | None = None
    """The training file; None uses the corpus's documents, if there is a corpus."""
    valid: str | None = None
    """The validation file; None holds out one item in twenty of train, at most 500."""
    test: str | None = None
    """The test file.

    A name that ends in .txt means CodeXGLUE's form, a file of code per line with its tokens joined by single spaces;
    other files are records of source code.
    """
    code: str = "code"
    """The field of records with the code."""
    language: str = "Python"
    """The language of source code; any with a tree-sitter grammar."""
    max_characters: PositiveInt | None = 4000
    """The length of the part of a longer text that is scored, at a random place.

    The limit keeps long files from outweighing the others. None scores whole texts, as CodeXGLUE does. Training always
    uses whole texts.
    """
    max_train: PositiveInt | None = None
    """The maximum number of training texts, drawn by seed; None uses all of a file, 20,000 documents of a corpus."""
    max_test: PositiveInt | None = None
    """The maximum number of test texts; None uses all of a file, 1,000 documents of a corpus."""

    @model_validator(mode="after")
    def _files_stand_in_a_folder(self) -> Self:
        if self.folder is None and (self.train or self.valid or self.test):
            raise ValueError("folder must be given with the files train, valid and test")
        if self.test is None and (self.train or self.valid):
            raise ValueError("test must be given with train and valid")
        if self.test is None and self.folder is not None:
            raise ValueError("folder holds files: name test, and train and valid where there are such")
        if self.valid and not self.train:
            raise ValueError("train must be given with valid")
        return self

    def build(self) -> "TokenCompletion":
        """Build the task. Raise UserError if the settings do not fit together."""
        return TokenCompletion(self)


class TokenCompletion:
    """The PredictingTask of a `TokenCompletionConfig`."""

    reads_corpus = True

    def __init__(self, config: TokenCompletionConfig) -> None:
        self.config = config
        self.is_source = not _is_spaced(config.test)

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        names = (self.config.train, self.config.valid, self.config.test)
        return [self._path(name) for name in names if name is not None]

    def load(self, source: Source) -> PredictingData:
        """Load the texts; test and validation texts without a token to score are skipped and counted.

        Raise UserError if the data cannot be used, or neither files nor a corpus are given.
        """
        config, facts = self.config, dict[str, float]()
        whole = self._texts(config.test, SPLIT_TO_TEST_ON, config.max_test, source)
        test = self._judged(whole, "test", source.seed, facts)
        published = _published(whole, test)
        if config.test is not None and config.train is None and source.prep is None:
            return PredictingData([], test, test, facts, published=published)
        train = self._texts(config.train, SPLIT_TO_TRAIN_ON, config.max_train, source)
        if config.valid is not None:
            texts = self._texts(config.valid, SPLIT_TO_TRAIN_ON, None, source)
        else:
            train, texts = held_out(train, source.seed, usable=lambda one: bool(one.lexemes))
        valid = self._judged(texts, "valid", source.seed, facts)
        learnt = {one.text for one in train}
        facts["test_texts_in_train"] = sum(one.text in learnt for one in whole)
        both = learnt_and_chosen_by(train, valid, test)
        return PredictingData(*both, test, facts, published=published)

    def code(self, key: str, text: str) -> Code:
        """Return a whole text in the form of the test texts."""
        return Code(key, text, partial(self._lexer(self.config.test), text))

    def evaluate(self, items: Sequence[Code], rank_DT: Sequence[NDArray[np.float64]]) -> list[Measured]:
        """Return accuracy in percent and MRR over all tokens, then the accuracy by lexeme class."""
        measured = [token_accuracy(rank_DT), token_mrr(rank_DT)]
        for kind in LexemeClass:
            of_kind = [
                rank_T[[one.kind is kind for one in item.lexemes]]
                for item, rank_T in zip(items, rank_DT, strict=True)
            ]
            if any(map(len, of_kind)):
                measured.append(token_accuracy(of_kind, f"accuracy_{kind}"))
        return measured

    def _texts(self, name: str | None, split: str, most: int | None, source: Source) -> list[Code]:
        """Return whole texts of a file, or of the corpus if there is no file."""
        if name is not None:
            lexer = self._lexer(name)
            items = [Code(key, text, partial(lexer, text)) for key, text in self._of_file(self._path(name))]
            return drawn(items, most, source.seed, f"token-completion-{split}")
        if source.prep is None:
            raise UserError(
                "token completion needs a test file or a prepared corpus: give test=FILE or a prep folder"
            )
        lexer, corpus = self._lexer(None), open_prepared(source.prep)
        documents = held_out_documents(corpus, split, source.seed, self.config.language)
        return [
            Code(document.name, document.text, partial(lexer, document.text))
            for document in islice(documents, most or _MOST_OF_CORPUS[split])
        ]

    def _of_file(self, path: Path) -> Iterator[tuple[str, str]]:
        if _is_spaced(path.name):
            yield from (
                (f"line {number}", without_ends(one)) for number, one in enumerate(read_lines(path), 1)
            )
            return
        for number, record in enumerate(read_records(path, (self.config.code,)), start=1):
            text, where = record[self.config.code], f"{path} record {number}"
            if not isinstance(text, str):
                raise UserError(f"{where}: {self.config.code!r} must be a text, not {type(text).__name__}")
            check_characters(text, where)
            yield f"record {number}", text

    def _judged(self, texts: Sequence[Code], split: str, seed: int, facts: dict[str, float]) -> list[Code]:
        """Return the part of each text that is scored, if it contains a token."""
        parts = [
            part_of(
                one, self.config.max_characters, keyed_generator(seed, f"token-completion-{split}", number)
            )
            for number, one in enumerate(texts)
        ]
        usable = [one for one in parts if one.lexemes]
        if len(usable) < len(parts):
            facts[f"{split}_left_out_without_tokens"] = len(parts) - len(usable)
        if parts and not usable:
            raise UserError(
                f"none of the {len(parts)} {split} texts has a code token: check the file, and task.language="
                f"{self.config.language}"
            )
        return usable

    def _lexer(self, name: str | None) -> _Lexer:
        if _is_spaced(name):
            return spaced_lexemes
        if grammar_name(self.config.language) == "python":
            return python_lexemes
        return partial(grammar_lexemes, language=self.config.language)

    def _path(self, name: str) -> Path:
        assert self.config.folder is not None
        return self.config.folder / name


def _published(whole: Sequence[Code], parts: Sequence[Code]) -> dict[str, tuple[str, ...]]:
    """Return the originals of the parts: without the words that are cut at their ends. Texts are found by key."""
    text_of, published = {one.key: one.text for one in whole}, Published()
    for part in parts:
        text = text_of[part.key]
        first = text.find(part.text)
        published.note(part.text, whole_words(text, first, first + len(part.text)))
    return published.changed()


def _is_spaced(name: str | None) -> bool:
    return name is not None and name.endswith(".txt")


_WRAPPED_CHARACTERS = 100


def part_of(item: Code, most: int | None, generator: np.random.Generator) -> Code:
    """Return the item, or a random part of at most `most` characters that starts at a line or after a blank.

    The lexemes are those of the whole text, because a part may start within a string.
    """
    text = item.text
    if most is None or len(text) <= most:
        return item
    starts = _starts(text, most)
    start = starts[int(generator.integers(len(starts)))]
    return Code(item.key, text[start : start + most], partial(_lexemes_within, item, start, start + most))


def _starts(text: str, most: int) -> Sequence[int]:
    """Return where parts may start: at lines, up to the first start from which a part reaches the text's end.

    A line longer than half a part is treated as lines of about 100 characters, which start after a blank if possible.
    """
    latest, end = len(text) - most, len(text.rstrip())
    starts: list[int] = []
    begin = 0
    for line in text[:end].split("\n"):
        starts.append(begin)
        if len(line) > most // 2:
            starts += _within(line, begin, min(_WRAPPED_CHARACTERS, max(1, most // 2)))
        begin += len(line) + 1
    return starts[: bisect_left(starts, latest) + 1]


def _within(line: str, begin: int, width: int) -> Iterator[int]:
    for place in range(width, len(line), width):
        blank = line.find(" ", place, place + width - 1)
        yield begin + (blank + 1 if blank >= 0 else place)


def _lexemes_within(item: Code, start: int, end: int) -> list[Lexeme]:
    """Return the lexemes that are entirely within characters [start, end), with byte offsets relative to `start`."""
    first_byte, last_byte = len(item.text[:start].encode()), len(item.text[:end].encode())
    return [
        Lexeme(one.text, one.kind, one.start_byte - first_byte, one.end_byte - first_byte)
        for one in item.lexemes
        if first_byte <= one.start_byte and one.end_byte <= last_byte
    ]
