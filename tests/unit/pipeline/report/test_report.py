"""The report stands alone and says what the numbers say."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.folder.recipe import load_run_config
from pipeline.folder.stage_record import write_record
from pipeline.report.corpus_charts import corpus_charts, shares
from pipeline.report.report import render_report, write_report
from pipeline.report.summary import summary_lines
from pretrain.figures import figures_of
from tests.unit.pipeline import example_run


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    journal = tmp_path_factory.mktemp("report") / "journal.jsonl"
    example_run.write_pretrain_journal(journal)
    return journal


@pytest.fixture(scope="module")
def html(journal: Path) -> str:
    config = load_run_config("demo").model_dump(mode="json")
    return render_report(config, example_run.records(), journal)


TITLES = (
    "Files kept and dropped",
    "Languages before and after",
    "Licences before and after",
    "Document lengths",
    "Near-duplicate clusters",
    "Bytes per token by language",
    "Packages by split",
    "Validation bits per byte",
    "Validation by order",
    "Training loss",
    "Tokens per second",
    "Learning rate",
    "completion: accuracy",
    "search: mrr",
    "Time per stage",
    "Where the time of pretraining went",
)


class _Resources(HTMLParser):
    """Collects everything a browser would fetch, ids and references to them."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.num_svgs = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.num_svgs += tag == "svg"
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data") and value is not None:
                (self.references if value.startswith("#") else self.fetched).append(value)
            if name == "id" and value is not None:
                self.ids.append(value)


def parsed(html: str) -> _Resources:
    parser = _Resources()
    parser.feed(html)
    return parser


def test_the_report_fetches_nothing(html: str) -> None:
    assert parsed(html).fetched == []
    assert "@import" not in html
    assert "<script" not in html
    assert re.search(r"url\((?!#)", html) is None


def test_the_report_has_every_picture(html: str) -> None:
    assert parsed(html).num_svgs == len(TITLES)
    for title in TITLES:
        assert f"<h3>{title}" in html


def test_pictures_do_not_share_ids(html: str) -> None:
    resources = parsed(html)
    assert len(resources.ids) == len(set(resources.ids))
    assert {reference[1:] for reference in resources.references} <= set(resources.ids)


def test_charts_have_the_text_colour_of_the_page(html: str) -> None:
    assert "currentColor" in html
    assert "#010203" not in html
    assert "#000000" not in html


def test_names_from_the_corpus_are_escaped(html: str) -> None:
    assert "<odd" not in html
    assert "python/&lt;odd &amp; name&gt;" in html


@pytest.mark.parametrize(
    "number",
    [
        "90.0%",
        "start-up 4.0%, lost work re-done 6.0%",
        "2.113 bits per byte",
        "standard error 0.031",
        "2.544 and 1.871",
        "yes: 37.9% lower",
        "yes: 8.2% lower",
        "51.2",
        "NO: -0.019",
        "step 200",
    ],
)
def test_the_headline_numbers_stand_in_the_report(html: str, number: str) -> None:
    assert number in html


def test_equal_runs_give_equal_reports(html: str, journal: Path, tmp_path: Path) -> None:
    copy = shutil.copy(journal, tmp_path / "journal.jsonl")
    config = load_run_config("demo").model_dump(mode="json")
    assert render_report(config, example_run.records(), copy) == html


def test_a_run_without_any_validation_still_has_a_report(tmp_path: Path) -> None:
    config = load_run_config("demo").model_dump(mode="json")
    assert "<svg" in render_report(config, example_run.records(), tmp_path / "missing.jsonl")


def test_the_stage_reads_the_records_of_its_inputs(tmp_path: Path) -> None:
    inputs = {}
    for name, record in example_run.records().items():
        inputs[name] = tmp_path / name
        write_record(inputs[name], record)
    example_run.write_pretrain_journal(inputs["pretrain"] / "journal.jsonl")
    folder = tmp_path / "report"
    summary = write_report(load_run_config("demo").model_dump(mode="json"), inputs, folder)
    assert summary["num_bytes"] == (folder / "report.html").stat().st_size


def test_the_terminal_summary_reports_which_baselines_were_beaten(tmp_path: Path) -> None:
    text = "\n".join(summary_lines(example_run.records(), tmp_path, "sqlite:////x/mlflow.db"))
    assert re.search(r"beats the unigram by 25%\?\s+│ yes: 37.9% lower", text)
    assert re.search(r"beats the bigram\?\s+│ yes: 8.2% lower", text)
    assert text.endswith("ui --backend-store-uri sqlite:////x/mlflow.db")


def test_a_model_that_beats_no_baseline_is_reported_so(tmp_path: Path) -> None:
    records = example_run.records()
    records["pretrain"].summary.update(beats_unigram_by=0.1, beats_bigram=False)
    records["pretrain"].summary["validation"]["model_bits_per_byte"] = 3.06
    text = "\n".join(summary_lines(records, tmp_path, "sqlite:////x/mlflow.db"))
    assert re.search(r"by 25%\?\s+│ NO: 10.0% lower", text)
    assert re.search(r"bigram\?\s+│ NO: 33.0% higher", text)


def test_a_partial_run_has_a_summary_too(tmp_path: Path) -> None:
    records = {"prep": example_run.records()["prep"]}
    text = "\n".join(summary_lines(records, tmp_path, "sqlite:////x/mlflow.db"))
    assert "7,034 files" in text
    assert "report.html" not in text


def test_a_corpus_with_odd_names_and_little_in_it_has_its_pictures() -> None:
    prep = example_run.prep_summary()
    odd = r"a$b_{$ \frac$c"
    entry = {"num_files": 1, "num_bytes": 5, "num_tokens": 2}
    prep |= {"languages": {odd: entry}, "languages_listed": {odd: entry}, "licences": {odd: entry}}
    prep |= {"licences_listed": {odd: entry}, "document_bytes_histogram": {"4": 1}, "cluster_sizes": {}}
    prep |= {"repositories": [{"name": odd, "split": "train", "num_files": 1, "num_bytes": 5}]}
    titles = [chart.title for chart in corpus_charts(prep)]
    assert len(titles) == 6
    assert "Near-duplicate clusters" not in titles
    assert all("a$b_{$" in chart.svg for chart in corpus_charts(prep) if "before" in chart.title)


def test_shares_add_up_and_the_rare_stand_together() -> None:
    listed = {f"language {i}": {"num_files": 1, "num_bytes": 1000 - i} for i in range(40)}
    svg = shares("Languages", listed, {"language 39": {"num_files": 1, "num_bytes": 7}}).svg
    assert "26 others" in svg
    assert "100.0 %" in svg
    assert "language 39" in svg
    assert "language 25" not in svg


def test_a_run_whose_journal_was_moved_away_has_a_report_and_a_table(tmp_path: Path) -> None:
    records = example_run.records()
    empty = figures_of([], None, 0.0).summary()
    records["pretrain"] = replace(records["pretrain"], summary=records["pretrain"].summary | empty)
    html = render_report(load_run_config("demo").model_dump(mode="json"), records, tmp_path / "journal.jsonl")
    assert "the journal has no step" in html
    assert any("not recorded" in line for line in summary_lines(records, tmp_path, "sqlite:///mlflow.db"))
