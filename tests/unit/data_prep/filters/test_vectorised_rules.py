"""The vectorized rules agree with their references, on generated texts and on real files."""

import sysconfig
import time
from html import escape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.filters.characters import (
    MAX_CONTROL_SHARE,
    alphanumeric_share,
    control_characters,
    encoded_data,
    letter_share,
)
from data_prep.filters.config import FiltersConfig
from data_prep.filters.lines import line_count, line_length, mean_line_length
from data_prep.filters.markup import num_visible_chars
from data_prep.text.file import TextFile
from tests.unit.data_prep.filters import plain_rules

TEXTS = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("\n\n é日a1 \t"), max_size=150)
# Pieces of which encoded data, and what looks like it, is made.
PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "41 ",
                "0x41,",
                "0xfF, ",
                "\\x41",
                "\\x4G",
                "4a",
                "ff,\n  ",
                "0x123, ",
                "\\u00e9",
                "\\u12",
                "A",
                "a/b",
            ),
            *("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=", "x = 1\n", " ", "\n", "word", " " * 33, "'", "9" * 70),
        ]
    )
    | st.sampled_from(["0x41, ", "\\u0041", "\\x41", "41 ", "QUJ1"]).flatmap(
        lambda piece: st.integers(1, 60).map(lambda times: piece * times)
    ),
    max_size=40,
).map("".join)


def file_of(text: str, language: str = "Python") -> TextFile:
    return TextFile(text.encode(), "a.py", language)


def assert_rules_agree(text: str, config: FiltersConfig) -> None:
    file = file_of(text)
    num_lines = len(plain_rules.lines(text))
    assert (line_length(file, config) is not None) == (plain_rules.longest_line(text) > config.max_line_chars)
    mean = plain_rules.mean_line(text)
    assert (mean_line_length(file, config) is not None) == (mean > config.max_mean_line_chars)
    share = plain_rules.alphanumeric_share(text)
    assert (alphanumeric_share(file, config) is not None) == (share < config.min_alphanumeric_share)
    assert (letter_share(file, config) is not None) == (
        plain_rules.letter_share(text) < config.min_letter_share
    )
    share = plain_rules.control_share(text)
    assert (control_characters(file, config) is not None) == (share > MAX_CONTROL_SHARE)
    assert (line_count(file, config) is not None) == (num_lines > config.max_lines)


@given(TEXTS)
@settings(max_examples=100)
def test_shares_and_lengths_agree_on_any_text(text: str) -> None:
    # Binary fractions, so that shares fall on the limits too.
    config = FiltersConfig(
        max_line_chars=8,
        max_mean_line_chars=4,
        min_alphanumeric_share=0.5,
        min_letter_share=0.25,
        max_lines=5,
    )
    assert_rules_agree(text, config)


@given(PIECES, st.sampled_from([30, 200, 1024]), st.sampled_from([0.25, 0.5, 0.9]))
@settings(max_examples=100)
def test_encoded_data_agrees_on_any_pieces(text: str, max_chars: int, max_share: float) -> None:
    found = encoded_data(file_of(text), FiltersConfig(), max_run_chars=max_chars, max_share=max_share)
    assert (found is not None) == plain_rules.is_encoded(text, max_chars, max_share)


def test_rules_agree_on_real_files() -> None:
    config = FiltersConfig()
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [*sorted(folder.glob("*.py"))[:60], *sorted(folder.glob("encodings/cp1*.py"))]
    num_encoded = 0
    for path in paths:
        text = path.read_bytes().decode()
        assert_rules_agree(text, config)
        if text.isascii():
            plain = plain_rules.is_encoded(text, 60, 0.1)
            found = encoded_data(file_of(text), config, max_run_chars=60, max_share=0.1)
            assert (found is not None) == plain, path
            num_encoded += plain
    assert len(paths) > 60
    assert 0 < num_encoded < len(paths)


TAGS = st.lists(
    st.sampled_from(
        [
            *(
                "<p>",
                "</p>",
                "<a href='x'>",
                "<br/>",
                "<!-- a > comment -->",
                "<script>if (a<b) c()</script>",
            ),
            *(
                "<STYLE>p { }</STYLE>",
                "<!DOCTYPE html>",
                " a < b ",
                "&amp;",
                "word ",
                "naïve 日本 ",
                "\n",
                " > ",
            ),
        ]
    ),
    max_size=30,
).map("".join)


@given(TAGS)
@settings(max_examples=100)
def test_visible_text_is_what_an_html_parser_shows(html: str) -> None:
    assert num_visible_chars(html.encode()) == plain_rules.num_visible_chars(html)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=80))
@settings(max_examples=50)
def test_escaped_text_is_completely_visible(text: str) -> None:
    page = f"<html><title>{escape(text)}</title></html>"
    assert num_visible_chars(page.encode()) == len(escape(text))


@pytest.mark.parametrize(
    "piece", ["<script", "<", "<!--", "<p", "</script>", ">", "<style>x", "<script></script>"]
)
def test_adversarial_html_is_counted_in_one_pass(piece: str) -> None:
    page = (piece * 50_000).encode()
    start = time.process_time()
    assert 0 <= num_visible_chars(page) <= len(page)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("piece", ["41 ", "41" + " " * 33, "0x41,", "\\u0041\\", "\\x4", " ", "\n", "A", "4"])
def test_adversarial_encoded_data_is_measured_in_one_pass(piece: str) -> None:
    file = file_of(piece * (400_000 // len(piece)))
    start = time.process_time()
    encoded_data(file, FiltersConfig())
    assert time.process_time() - start < 2
