"""The result of an evaluation: bits per byte with standard errors, and the names of its figures.

Standard errors come from sums over documents that can be added up over lanes and workers.

Shapes: D documents.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.journal import metric_name
from pretrain.evaluation.conditions import HEADLINE, Condition

NUM_SUMS = 6
"""The number of sums: documents, nats, bytes, nats squared, nats times bytes, bytes squared."""


@dataclass(frozen=True)
class Estimate:
    """The bits per byte of the scored tokens of some documents."""

    bits_per_byte: float
    standard_error: float | None
    """The standard error from the choice of documents; None with fewer than two of them."""
    num_bytes: int
    """The UTF-8 bytes of the scored tokens."""
    num_documents: int

    @classmethod
    def of(cls, sums: NDArray[np.float64]) -> "Estimate | None":
        """Return the ratio of sums with its standard error (Cochran 1977, "Sampling Techniques", ch. 6).

        Documents are the sampling units. None if no byte was scored.
        """
        num_documents, nats, num_bytes, nats_squared, nats_times_bytes, bytes_squared = map(float, sums)
        if num_bytes == 0:
            return None
        ratio = nats / num_bytes
        # Sum over documents of (nats - ratio * bytes)^2; rounding may leave it a little below 0.
        residual = max(0.0, nats_squared - 2 * ratio * nats_times_bytes + ratio**2 * bytes_squared)
        standard_error = None
        if num_documents >= 2:
            spread = math.sqrt(residual * num_documents / (num_documents - 1)) / num_bytes
            standard_error = spread / math.log(2.0)
        return cls(ratio / math.log(2.0), standard_error, int(num_bytes), int(num_documents))


def document_sums(nats_D: NDArray[np.float64], bytes_D: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every document's summands, float64 [D, NUM_SUMS]."""
    return np.stack([np.ones_like(nats_D), nats_D, bytes_D, nats_D**2, nats_D * bytes_D, bytes_D**2], axis=1)


@dataclass(frozen=True)
class Row:
    """One figure of a condition and a language; None is all languages together."""

    condition: Condition
    language: str | None
    estimate: Estimate


@dataclass(frozen=True)
class Evaluation:
    """The figures of one evaluation, the headline first: left to right, with memory, all languages."""

    rows: tuple[Row, ...]

    @classmethod
    def of_sums(
        cls, conditions: Sequence[Condition], languages: Sequence[str], sums: NDArray[np.float64]
    ) -> "Evaluation":
        """Make it from the sums [conditions, languages, NUM_SUMS] of all lanes. Raises UserError if nothing was scored.

        Without `languages` the sums have one row for all of them, and there are no figures by language.
        """
        rows = [
            Row(condition, language, estimate)
            for condition, table in zip(conditions, sums, strict=True)
            for language, values in [(None, table.sum(axis=0)), *zip(languages, table, strict=False)]
            if (estimate := Estimate.of(values)) is not None
        ]
        if not rows or rows[0].condition != HEADLINE:
            raise UserError(
                "the validation text spells no bytes, so there is nothing to score: use a larger corpus"
            )
        return cls(tuple(rows))

    @property
    def headline(self) -> Estimate:
        """The estimate left to right, with the model's memory, of all languages."""
        return self.rows[0].estimate

    def metrics(self) -> dict[str, float]:
        """Return the figures by names that MLflow accepts; a standard error has its figure's name with `_se`.

        Left to right with memory is `validation_bits_per_byte` and, by language, `validation.language.NAME`; all
        languages together in other conditions are `validation.any_order`, `validation.infill.without_memory`, ...
        """
        found: dict[str, float] = {}
        for row in self.rows:
            name = _metric_name(row)
            if name is not None:
                found[name] = row.estimate.bits_per_byte
                if row.estimate.standard_error is not None:
                    found[f"{name}_se"] = row.estimate.standard_error
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the headline, every condition's bits per byte of all languages, and `table`, a row for each figure."""
        headline = self.headline
        return {
            "model_bits_per_byte": headline.bits_per_byte,
            "model_standard_error": headline.standard_error,
            "num_bytes": headline.num_bytes,
            "num_documents": headline.num_documents,
            "by_condition": {
                row.condition.name: row.estimate.bits_per_byte for row in self.rows if row.language is None
            },
            "table": [
                asdict(row.condition) | {"language": row.language} | asdict(row.estimate) for row in self.rows
            ],
        }


def _metric_name(row: Row) -> str | None:
    if row.language is None:
        is_headline = row.condition == HEADLINE
        return "validation_bits_per_byte" if is_headline else f"validation.{row.condition.name}"
    if row.condition == HEADLINE:
        return f"validation.language.{metric_name(row.language)}"
    return None
