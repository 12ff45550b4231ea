"""The report's table and chart of validation by order and by language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.charts import BLUE, CURVE_INCHES, GREEN, HALF_INCHES, ORANGE, Chart, token_axis
from pipeline.report.curve_data import Curve
from pipeline.report.svg import draw

_ORDERS = {"left_to_right": "left to right", "any_order": "any order", "infill": "infill"}
_CURVES = (
    ("validation_bits_per_byte", "left to right", BLUE, "-"),
    ("validation.left_to_right.without_memory", "without memory", BLUE, ":"),
    ("validation.any_order", "any order", ORANGE, "-"),
    ("validation.infill", "infill", GREEN, "-"),
)
_NUM_LANGUAGES = 12


@dataclass(frozen=True)
class ValidationTable:
    """Bits per byte as texts: a column per condition, a row for all languages and one for each of the largest."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]

    @classmethod
    def of(cls, table: Sequence[Mapping[str, Any]]) -> "ValidationTable":
        """Make the table from the rows of `Evaluation.to_json`, which begin with those of the headline."""
        figures = {(_condition(row), row["language"]): row for row in table}
        columns = list(dict.fromkeys(_condition(row) for row in table))
        texts = [row for row in table if _condition(row) == columns[0] and row["language"] is not None]
        texts.sort(key=lambda row: (-row["num_bytes"], row["language"]))
        languages = [None, *(row["language"] for row in texts[:_NUM_LANGUAGES])]
        rows = [
            (language or "all", [_figure(figures.get((column, language))) for column in columns])
            for language in languages
        ]
        return cls(columns, rows)


def order_curves(curves: Mapping[str, Curve]) -> list[Chart]:
    """Return a chart of the bits per byte in every order over the training; [] if only one order was scored."""
    found = [(curves[name], label, colour, line) for name, label, colour, line in _CURVES if name in curves]
    if len(found) < 2:
        return []

    def paint(axes: Any) -> None:
        for curve, label, colour, line in found:
            axes.plot(curve.tokens, curve.values, color=colour, linestyle=line, label=label)
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left", fontsize=8)
        token_axis(axes, "bits per byte")

    note = "The samples have different sizes: compare orders in the table. Lower is better."
    return [Chart("Validation by order", note, draw(HALF_INCHES, CURVE_INCHES, paint, "orders"))]


def _condition(row: Mapping[str, Any]) -> str:
    order = _ORDERS[row["order"]]
    return order if row["with_memory"] else f"{order}, no memory"


def _figure(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    error = row["standard_error"]
    return f"{row['bits_per_byte']:.3f}" + ("" if error is None else f" ± {error:.3f}")
