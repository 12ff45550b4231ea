"""score of several parts of a file at once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pretrain.inference.language_model import PermutationLM
from pretrain.inference.scoring import score_chosen
from tests.unit.pipeline.commands.model_commands.command import CODE, permcode

TEXT = CODE.encode()


def scored(*arguments: object) -> dict[str, Any]:
    result = permcode("score", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    record: dict[str, Any] = json.loads(result.stdout)
    return record


def tokens_of(lm: PermutationLM, *ranges: tuple[int, int]) -> list[int]:
    """Places of the tokens with a byte in any of the ranges, byte by byte."""
    num_bytes_T = lm.tokenizer.token_bytes[lm.tokenizer.encode_bytes(TEXT)]
    place_of_byte = np.repeat(np.arange(len(num_bytes_T)), num_bytes_T)
    return sorted({int(place) for start, end in ranges for place in place_of_byte[start:end]})


def test_several_ranges_are_scored_together_given_the_rest(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    order = tokens_of(lm, (4, 9), (30, 41), (60, 62))
    tokens = lm.tokenizer.encode_bytes(TEXT)
    wanted = score_chosen(lm.network, tokens, np.array(order), lm.tokenizer.eod_id, lm.segment_tokens)
    found = scored(model, file, "--bytes", "4:9", "--bytes", "30:41,60:62")
    assert found["log_likelihood"] == pytest.approx(wanted.log_likelihood, abs=1e-4)
    assert found["num_tokens"] == len(order)
    parts = found["ranges"]
    assert [(one["start_byte"], one["end_byte"]) for one in parts] == [(4, 9), (30, 41), (60, 62)]
    for key in ("log_likelihood", "bits", "num_tokens", "num_bytes"):
        assert sum(one[key] for one in parts) == pytest.approx(found[key], abs=1e-9)


def test_each_range_is_scored_given_those_before_it(model: Path, file: Path) -> None:
    """The chain rule in the order of prediction: log p(A, B) = log p(A) + log p(B | A), both given the rest."""
    lm = PermutationLM.from_run(model)
    first, second = tokens_of(lm, (4, 9)), tokens_of(lm, (30, 41))
    tokens = lm.tokenizer.encode_bytes(TEXT)
    # What is predicted behind A is hidden from it, in whatever order.
    of_first, of_second = (
        score_chosen(lm.network, tokens, np.array(order), lm.tokenizer.eod_id, lm.segment_tokens)
        for order in (first + second[::-1], first + second)
    )
    found = scored(model, file, "--bytes", "4:9,30:41")
    wanted = [
        of_first.log_probability_P[: len(first)].sum(), of_second.log_probability_P[len(first) :].sum()
    ]  # fmt: skip
    assert [one["log_likelihood"] for one in found["ranges"]] == pytest.approx(wanted, abs=1e-4)
    assert found["log_likelihood"] == pytest.approx(sum(wanted), abs=1e-4)


def test_ranges_may_come_in_any_order_and_overlap(model: Path, file: Path) -> None:
    wanted = permcode("score", model, file, "--lines", "1-2,5", "--json", "--per-token").stdout
    for options in (
        ("--lines", "5", "--lines", "1-2"),
        ("--lines", "5,2,1-2,5"),
        ("--lines", "5-5", "--lines", "1-2", "--lines", "2-2,1"),
    ):
        assert permcode("score", model, file, *options, "--json", "--per-token").stdout == wanted
    assert len(json.loads(wanted)["ranges"]) == 2


def test_adjacent_ranges_are_reported_one_by_one(model: Path, file: Path) -> None:
    apart = scored(model, file, "--lines", "1,2")
    whole = scored(model, file, "--lines", "1-2")
    assert [len(one["ranges"]) for one in (apart, whole)] == [2, 1]
    assert apart | {"ranges": whole["ranges"]} == whole


def test_a_token_that_reaches_into_two_ranges_counts_once(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    tokens = lm.tokenizer.encode_bytes(TEXT)
    num_bytes_T = lm.tokenizer.token_bytes[tokens]
    place = int(np.argmax(num_bytes_T))
    start = int(num_bytes_T[:place].sum())
    assert num_bytes_T[place] > 1
    found = scored(model, file, "--bytes", f"{start}:{start + 1},{start + 1}:{start + 2}")
    first, second = found["ranges"]
    assert (first["num_tokens"], second["num_tokens"], found["num_tokens"]) == (1, 0, 1)
    assert (second["log_likelihood"], second["bits_per_byte"], second["perplexity_per_token"]) == (0, None, 1)
    printed = permcode("score", model, file, "--bytes", f"{start}:{start + 1},{start + 1}:{start + 2}").stdout
    assert f"bytes {start + 1}:{start + 2}: no token of its own" in printed.splitlines()[1]


def test_every_range_has_a_line_and_all_of_them_one(model: Path, file: Path) -> None:
    record = scored(model, file, "--lines", "5-6,2")
    lines = permcode("score", model, file, "--lines", "5-6,2").stdout.splitlines()
    assert len(lines) == 3
    for line, name, one in zip(
        lines, (", lines 2-2", ", lines 5-6", ""), [*record["ranges"], record], strict=True
    ):
        assert line.startswith(
            f"{file}{name}: {one['bits_per_byte']:.4f} bits per byte ({one['bits']:,.1f} bits"
        )
    single = permcode("score", model, file, "--lines", "2,2").stdout
    assert single == permcode("score", model, file, "--lines", "2").stdout
    assert single.count("\n") == 1
    by_token = permcode("score", model, file, "--lines", "5-6,2", "--per-token").stdout.splitlines()
    assert len(by_token) == 3 + record["num_tokens"]
    assert [line for line in by_token if " bits  " not in line] == lines
    assert by_token[record["ranges"][0]["num_tokens"]] == lines[0]
