import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import cluster.reporter
from cluster.reporter import Reporter, count_text, duration_text, rate_text


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=40)


def output_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_are_not_wrapped_or_formatted(tmp_path: Path) -> None:
    console = plain_console()
    reporter = Reporter(tmp_path / "logs" / "run.log", console)
    reporter.line("[bold]not markup[/bold] " + "x" * 60)
    reporter.warn("disk nearly full")
    assert output_of(console).splitlines() == [
        "[bold]not markup[/bold] " + "x" * 60,
        "warning: disk nearly full",
    ]
    logged = (tmp_path / "logs" / "run.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in logged] == output_of(console).splitlines()


def test_plain_bar_shows_rate_remaining_time_and_note(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(cluster.reporter.time, "monotonic", lambda: now_s)
    console = plain_console()
    with Reporter(console=console).bar("pretrain", 100, "steps") as bar:
        for step in range(1, 21):
            now_s = step * 0.5
            bar.update(step, f"loss {step}")
    assert output_of(console).splitlines() == [
        "pretrain: 10/100 steps, 2 steps/s, 45s left, loss 10",
        "pretrain: 20/100 steps, 2 steps/s, 40s left, loss 20",
        "pretrain: 20/100 steps, 2 steps/s, 40s left, loss 20",
    ]


def test_plain_bar_of_a_resumed_run_counts_only_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(cluster.reporter.time, "monotonic", lambda: now_s)
    console = plain_console()
    with Reporter(console=console).bar("pretrain", 100, "steps") as bar:
        bar.update(50)
        now_s = 4.0
        bar.advance(8)
    assert output_of(console).splitlines() == ["pretrain: 58/100 steps, 2 steps/s, 21s left"]


def test_plain_bar_measures_the_rate_from_the_start_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(cluster.reporter.time, "monotonic", lambda: now_s)
    console = plain_console()
    with Reporter(console=console).bar("second", 100, "steps") as bar:
        now_s = 1000.0
        bar.update(0)
        now_s = 1004.0
        bar.update(8)
    assert output_of(console).splitlines()[-1] == "second: 8/100 steps, 2 steps/s, 46s left"


def test_plain_bar_measures_the_rate_to_the_end_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(cluster.reporter.time, "monotonic", lambda: now_s)
    console = plain_console()
    with Reporter(console=console).bar("first", 10, "steps") as bar:
        bar.update(0)
        now_s += 20
        bar.update(10)
        now_s += 500  # another bar's work
    assert output_of(console).splitlines()[-1] == "first: 10/10 steps, 2 s per step"


def test_bar_shows_its_last_position_when_the_work_fails() -> None:
    console = plain_console()
    reporter = Reporter(console=console)

    def work() -> None:
        with reporter.bar("prep", 3, "files") as bar:
            bar.advance()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        work()
    assert output_of(console).startswith("prep: 1/3 files")


def test_terminal_gets_bars_and_lines_above_them() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    reporter = Reporter(console=console)
    with reporter.bar("outer", 2, "stages") as outer, reporter.bar("inner", 1000, "files") as inner:
        inner.update(1000, "note")
        outer.advance()
        reporter.line("a fact")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output_of(console))
    assert "a fact" in text
    assert "1/2 stages" in text
    assert "1000/1000 files" in text
    assert "note" in text
    with reporter.bar("later", 1, "files"):
        pass


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9999, "9999"), (12345, "12.3k"), (999_999, "1M"), (1.5e9, "1.5G"), (0.25, "0.25")],
)
def test_count_text(value: float, text: str) -> None:
    assert count_text(value) == text


def test_rate_and_duration_text() -> None:
    assert rate_text(1234.5, "tokens") == "1230 tokens/s"
    assert rate_text(0.25, "steps") == "4 s per step"
    assert [duration_text(s) for s in (5.4, 59.6, 125, 7500)] == ["5s", "1m00s", "2m05s", "2h05m"]


def test_log_on_a_full_disk_does_not_end_the_work() -> None:
    console = plain_console()
    Reporter(Path("/dev/full"), console).line("a fact")
    assert output_of(console) == "a fact\n"
