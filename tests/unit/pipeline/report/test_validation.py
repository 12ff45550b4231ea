"""The table of validation figures, as the report shows it."""

from pipeline.report.curve_data import Curve
from pipeline.report.validation import ValidationTable, order_curves
from tests.unit.pipeline.example_run import validation_table


def test_languages_of_most_text_come_first_and_what_is_missing_is_a_dash() -> None:
    table = ValidationTable.of(validation_table())
    assert table.columns == ["left to right", "infill, no memory"]
    assert table.rows == [
        ("all", ["2.113 ± 0.031", "1.871 ± 0.045"]),
        ("Python", ["2.013 ± 0.029", "1.871 ± 0.045"]),
        ("C++", ["3.313", "–"]),
    ]


def test_orders_have_a_picture_only_where_there_are_several() -> None:
    curve = Curve([1.0, 2.0], [3.0, 2.0])
    assert order_curves({"validation_bits_per_byte": curve}) == []
    [chart] = order_curves({"validation_bits_per_byte": curve, "validation.infill": curve})
    assert "infill" in chart.svg
    assert "any order" not in chart.svg
