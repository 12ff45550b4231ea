"""`permcode plan`: its tables add up, what cannot fit is refused in one line."""

import re

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli import app

# Long segments of few layers: much memory, soon traced.
LONG = ("pretrain.model.num_layers=4", "pretrain.segment_tokens=16384")


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def table(text: str, first: str) -> dict[str, list[str]]:
    """The rows below the header that starts with `first`, up to the first line of another width."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(first))
    rows = {}
    for line in lines[start + 1 :]:
        name, *cells = re.split(r"\s{2,}", line)
        if not cells:
            break
        rows[name] = cells
    return rows


@pytest.fixture(scope="module")
def shown() -> str:
    result = plan("--recipe", "tiny", "pretrain.model.segment_encodings=true")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_parts_of_the_parameters_add_up(shown: str) -> None:
    rows = {name: int(cells[0].replace(",", "")) for name, cells in table(shown, "parameters").items()}
    assert sum(rows.values()) == 2 * rows["total"]
    assert rows["segment encodings"] == 4 * 3 * 256
    assert "untied output" not in rows


def test_the_parts_of_the_flops_add_up(shown: str) -> None:
    rows = {name: float(cells[0]) for name, cells in table(shown, "FLOPs per corpus token").items()}
    recomputed = (f"training, {what} recomputed" for what in ("attention", "layers"))
    training = [rows.pop(name) for name in ("training", *recomputed)]
    forward = rows.pop("forward")
    assert sum(rows.values()) == pytest.approx(forward, abs=0.02)
    assert 2.5 * forward < training[0] < 3 * forward < training[1] < training[2] < 4 * forward


def test_totals_of_memory_are_what_is_held_and_the_larger_of_what_comes_in_turn(shown: str) -> None:
    rows = {
        name: [float(cell) for cell in cells] for name, cells in table(shown, "memory per GPU, GiB").items()
    }
    held = ("weights", "gradients", "masters and moments", "segment memory", "reserve")
    for how in ("none", "attention", "layers"):
        for stage in range(4):
            passes = max(rows[f"passes, recompute={how}"][stage], rows["optimizer step"][stage])
            total = sum(rows[name][stage] for name in held) + passes
            assert rows[f"total, recompute={how}"][stage] == pytest.approx(total, abs=0.03)


def test_time_follows_budget_gpus_utilisation_and_price() -> None:
    def row(*arguments: str) -> list[str]:
        shown = plan("--recipe", "base", "--gpu", "h100", "pretrain.model.num_layers=2", *arguments)
        assert shown.exit_code == 0, shown.output
        return table(shown.stdout, "time and cost")["8 x h100"]

    once = row("--tokens", "1e12", "--price", "2", "--mfu", "0.4")
    twice = row("--tokens", "2e12", "--price", "2", "--mfu", "0.4")
    slow = row("--tokens", "1e12", "--price", "2", "--mfu", "0.2")
    hours = float(once[4])
    assert float(twice[4]) == pytest.approx(2 * hours, rel=0.01)
    assert float(slow[4]) == pytest.approx(2 * hours, rel=0.01)
    assert float(once[6].replace(",", "")) == pytest.approx(hours * 8 * 2, rel=0.01)
    predicted = row("--tokens", "1e12", "--price", "2")
    share = float(predicted[2].removesuffix("%")) / 100
    assert 0.05 < share < 0.8
    # The assumed share's operations are those of which the predicted one is a share.
    assert float(predicted[4]) == pytest.approx(hours * 0.4 / share, rel=0.1)


def test_the_budget_is_whole_steps() -> None:
    text = plan("--recipe", "smoke", "--tokens", "1000", "--gpu", "l40s").stdout
    assert "1,024 tokens in 4 steps of 256\n" in text


def test_what_does_not_fit_is_refused_with_the_change_that_helps() -> None:
    result = plan("--recipe", "small", "--gpu", "a100-40gb", *LONG)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert re.search(
        r"needs [\d.]+ GiB on each GPU, [\d.]+ more than the 39 of a100-40gb: it fits with", line
    )
    change = re.search(r"with (pretrain\.\S+) \(", line)
    assert change is not None
    assert plan("--recipe", "small", "--gpu", "a100-40gb", *LONG, change[1]).exit_code == 0


def test_what_fits_no_gpu_at_all_is_refused_too() -> None:
    result = plan("--recipe", "smoke", "pretrain.segment_tokens=262144")
    assert result.exit_code == 2
    assert "more than the 178 of b200: neither smaller micro batches nor recomputing help" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu", "tpu"), "unknown GPU 'tpu': known are l40s"),
        (("--gpus", "3"), "lanes=4 must be a multiple of num_workers * micro_batch_lanes = 3 * 2 = 6"),
        (("--gpus", "0"), "pretrain.num_workers = 0"),
        (("--tokens", "nan"), "--tokens nan must be a number above 0"),
        (("--tokens", "-5"), "--tokens -5 must be a number above 0"),
        (("--mfu", "40"), "--mfu 40 is more than the whole peak"),
        (("--price", "inf"), "--price inf must be a number above 0"),
        (("pretrain.zero_stage=4",), "pretrain.zero_stage = 4"),
        (("pretrain.segment_tokens=1000000000",), "pretrain.segment_tokens = 1000000000"),
        (
            ("pretrain.model.memory_tokens=99999999999999999999",),
            "pretrain.model.memory_tokens = 99999999999999999999",
        ),
        (
            ("prep.tokenizer.vocab_size=99999999999999999999",),
            "prep.tokenizer.vocab_size = 99999999999999999999",
        ),
        (("pretrain.model.num_layers=1000000000",), "pretrain.model.num_layers = 1000000000"),
        (("pretrain.objective.max_span_words=1000000000",), "pretrain.objective.max_span_words = 1000000000"),
        (("pretrain.objective.max_gap_tokens=1000000000",), "pretrain.objective.max_gap_tokens = 1000000000"),
        (
            ("pretrain.lanes=4000000000", "pretrain.micro_batch_lanes=2000000000"),
            "pretrain.micro_batch_lanes",
        ),
        (
            (
                "pretrain.segment_tokens=1048576",
                "pretrain.model.memory_tokens=1048576",
                "pretrain.model.num_heads=1024",
                "pretrain.lanes=131072",
                "pretrain.micro_batch_lanes=65536",
            ),
            "the run is too large to plan",
        ),
        ((f"pretrain.num_steps={10**400}",), "the run is too large to plan"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = plan("--recipe", "smoke", *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("xl", "--gpu", "h100"),
        ("xl", "--gpu", "a100-80gb"),
        ("large", "--gpu", "h100", "pretrain.segment_tokens=4096", "pretrain.micro_batch_lanes=2"),
    ],
)
def test_large_models_with_long_segments_fit_gpus_of_80_gb(arguments: tuple[str, ...]) -> None:
    result = plan("--recipe", *arguments)
    assert result.exit_code == 0, result.output
    assert " yes " in result.stdout
