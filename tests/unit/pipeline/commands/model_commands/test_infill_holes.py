"""Several holes from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from pretrain.inference.language_model import PermutationLM
from tests.unit.pipeline.commands.model_commands.command import CODE, permcode


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    path = tmp_path / "marked.py"
    path.write_text("def <hole:2>(x):\n    return <hole>\n\n\ny = <hole:3>\n")
    return path


PARTS = ["def ", "(x):\n    return ", "\n\n\ny = ", "\n"]


def written(*arguments: object) -> dict[str, Any]:
    done = permcode("infill", *arguments, "--json")
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    record: dict[str, Any] = json.loads(line)
    return record


def test_marks_are_filled_together_as_from_python(model: Path, marked: Path) -> None:
    lm = PermutationLM.from_run(model)
    for order, name in (([0, 1, 2], "left_to_right"), ("most_certain", "most_certain")):
        record = written(model, marked, "--max-tokens", 5, "--order", name)
        expected = lm.infill_holes(PARTS, length=[2, None, 3], max_new_tokens=5, order=order)  # type: ignore[arg-type]
        assert [one["text"] for one in record["holes"]] == [one.text for one in expected.holes]
        assert record["log_likelihood"] == pytest.approx(expected.log_likelihood, rel=1e-5)
        assert record["num_passes"] == expected.num_passes
        assert record["order"] == [number + 1 for number in expected.order]
    assert [one["num_tokens"] for one in record["holes"]][::2] == [2, 3]


def test_fillings_have_a_line_before_each_and_whole_is_the_file(model: Path, marked: Path) -> None:
    record = written(model, marked, "--max-tokens", 5)
    texts = [one["text"] for one in record["holes"]]
    printed = permcode("infill", model, marked, "--max-tokens", 5)
    for number, text in enumerate(texts, start=1):
        assert f"==> hole {number} of 3 <==\n{text}" in printed.stdout
    whole = permcode("infill", model, marked, "--max-tokens", 5, "--whole")
    assert whole.stdout == PARTS[0] + "".join(a + b for a, b in zip(texts, PARTS[1:], strict=True))
    assert b"<hole" in marked.read_bytes()
    sampled = permcode("infill", model, marked, "--max-tokens", 5, "--temperature", 1, "--num", 2)
    assert [line for line in sampled.stdout.splitlines() if line.startswith("==>")] == [
        f"==> {sample} of 2, hole {hole} of 3 <==" for sample in (1, 2) for hole in (1, 2, 3)
    ]


def test_places_may_be_given_in_any_order_and_lines_are_written_anew(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    code = CODE.split("\n")
    record = written(model, file, "--at", "5:5:2", "--at", "2-3:4", "--at", "1:1:1")
    parts = ["", code[0] + "\n", "\n\n" + code[4][:4], code[4][4:] + "\n" + "\n".join(code[5:])]
    expected = lm.infill_holes(parts, length=[1, 4, 2], order=[2, 1, 0])
    assert [one["text"] for one in record["holes"]] == [one.text for one in expected.holes]
    assert record["order"] == [3, 2, 1]
    assert written(model, file, "--at", "5:5", "--at", "1:1:1", "--length", 2)["holes"][1]["num_tokens"] == 2


def test_json_of_one_hole_has_the_text_of_the_plain_form(model: Path, file: Path) -> None:
    for options in ((), ("--length", 3), ("--length", 3, "--order", "most_certain")):
        plain = permcode("infill", model, file, "--at", "2:5", *options)
        record = written(model, file, "--at", "2:5", *options)
        assert record["holes"][0]["text"].encode() == plain.stdout_bytes
        assert record["num_passes"] > 0


def test_line_ends_of_windows_stay(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "windows.py"
    path.write_bytes(b"a = 1\r\nb = 2\r\nc = 3\r\n")
    whole = permcode("infill", model, path, "--at", "2-2:2", "--whole").stdout_bytes
    assert whole.startswith(b"a = 1\r\n")
    assert whole.endswith(b"\r\nc = 3\r\n")
