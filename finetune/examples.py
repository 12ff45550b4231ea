"""What tasks are made of: texts to write, things to find, labels to give.

There are four kinds of task, by what a system is asked for: to write a text for a text (`Pair`), to rank candidates
for a query (`Match` to learn from, `Pool` to be judged by), to give a text or a pair of texts one of some labels
(`Labelled`), to predict every token of a text from those before it (`Code`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from finetune.lexing import Lexeme

Example = TypeVar("Example")
Judged = TypeVar("Judged")


@dataclass(frozen=True)
class Pair:
    """A source and what may be written for it: the first reference is the one to learn."""

    key: str
    """Names the item in predictions; unique in its split."""
    source: str
    references: tuple[str, ...]
    suffix: str | None = None
    """For infilling: what stands behind the hole; `source` stands before it."""
    language: str | None = None
    """Of the references, as tree-sitter names it."""
    leaked: bool = False
    """A test item whose reference stands verbatim among the references to learn: also judged without these."""


@dataclass(frozen=True)
class Match:
    """A query and something it should find. Items of one `group` are no negatives for each other."""

    query: str
    found: str
    group: str
    hard_negatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pool:
    """Queries that each search all `candidates`; `relevant[q]` are the numbers of those that query q should find.

    Where `excluded[q]` is a candidate's number, that candidate is the query itself and is not ranked.
    """

    query_keys: Sequence[str]
    queries: Sequence[str]
    candidates: Sequence[str]
    relevant: Sequence[tuple[int, ...]]
    excluded: Sequence[int | None] | None = None

    def of_queries(self, numbers: Sequence[int]) -> "Pool":
        """Some of the queries, all candidates."""
        return Pool(
            [self.query_keys[number] for number in numbers],
            [self.queries[number] for number in numbers],
            self.candidates,
            [self.relevant[number] for number in numbers],
            None if self.excluded is None else [self.excluded[number] for number in numbers],
        )


@dataclass(frozen=True)
class Labelled:
    """One text, or two to be compared, with the number of its label."""

    key: str
    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class Code:
    """A text whose code tokens are predicted one after the other."""

    key: str
    text: str
    read_lexemes: Callable[[], Sequence[Lexeme]]
    """Takes time, and what only learns whole texts does not need it."""

    @cached_property
    def lexemes(self) -> Sequence[Lexeme]:
        """The tokens in order, at their UTF-8 bytes of `text`; none for a text that cannot be read."""
        return self.read_lexemes()


@dataclass(frozen=True)
class TaskData(Generic[Example, Judged]):
    """A task's data. `facts` are counts worth telling: what was left out, cut, or is in two splits."""

    train: Sequence[Example]
    valid: Judged
    test: Judged
    facts: dict[str, float] = field(default_factory=dict)
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    """As what texts of `test` stand in the task's files, of those that the task has changed: see `Published`."""


WritingData = TaskData[Pair, Sequence[Pair]]
RankingData = TaskData[Match, Pool]
PredictingData = TaskData[Code, Sequence[Code]]


@dataclass(frozen=True)
class LabellingData(TaskData[Labelled, Sequence[Labelled]]):
    """Also says what it takes to build a system without any item: a saved one is loaded so."""

    num_texts: int = 0
    """Of an item, 1 or 2; 0 takes what the first item has."""
    num_labels: int = 0
    """At least; more are taken where items have more."""

    def shape(self) -> tuple[int, int]:
        """(texts of an item, labels), also by what the items show; (0, ...) where nothing tells."""
        items = [*self.train, *self.valid, *self.test]
        num_texts = self.num_texts or (len(items[0].texts) if items else 0)
        return num_texts, max([self.num_labels, *(1 + item.label for item in items)])
