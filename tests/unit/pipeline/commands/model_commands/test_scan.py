"""scan from the command line."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cluster.storage import write_document
from data_prep.finished.prepared import PreparedCorpus
from pipeline.commands import held_out_lines
from pretrain.inference.language_model import PermutationLM
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus
from tests.unit.pipeline.commands.model_commands.command import CODE, SEGMENT, assert_bad_input, permcode
from tests.unit.pipeline.commands.model_commands.sarif_schema import SARIF


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run: a prep folder and a model."""
    folder = tmp_path_factory.mktemp("scanned")
    splits = ("train", "validation", "test")
    corpus: PreparedCorpus = write_corpus(
        folder / "prep-0123456789ab", {split: stdlib_packages(["string"]) for split in splits}
    )
    save_model(
        tiny_model(corpus.tokenizer.vocab_size),
        folder / "pretrain-0123456789ab" / "model",
        folder / "prep-0123456789ab" / "tokenizer.json",
        segment_tokens=SEGMENT,
    )
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Not by XDG_CACHE_HOME: the compiled attention is in that folder, too.
    monkeypatch.setattr(held_out_lines, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def scanned_json(*arguments: object, **others: Any) -> list[dict[str, Any]]:
    done = permcode("scan", *arguments, "--format", "json", **others)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_json_has_every_line_and_the_figures_of_python(run: Path, file: Path) -> None:
    (record,) = scanned_json(run, file, "--top", 2)
    model = PermutationLM.from_run(run)
    (scan,) = model.scan(CODE)
    assert [one["line"] for one in record["lines"]] == [1, 2, 5, 6]
    for one, line in zip(record["lines"], scan.lines, strict=True):
        assert one["bits_given_rest"] == pytest.approx(-line.log_probability / math.log(2), rel=1e-5)
        assert one["bits_given_before"] == pytest.approx(-line.log_probability_before / math.log(2), rel=1e-5)
    assert record["reported"] == [line.number for line in scan.ranked()[:2]]
    assert record["threshold_bits"] is None
    written = {one["line"]: one["instead"]["text"] for one in record["lines"] if "instead" in one}
    expected = model.rewrite_lines(CODE, scan.ranked()[:2])
    assert written == {
        line.number: one.text for line, one in zip(scan.ranked(), expected, strict=False) if one
    }


def test_a_threshold_reports_the_lines_above_it(run: Path, file: Path) -> None:
    (half,) = scanned_json(run, file, "--false-alarms", 0.5)
    (few,) = scanned_json(run, file, "--false-alarms", 0.05)
    assert half["threshold_bits"] < few["threshold_bits"]
    for record in (half, few):
        above = {one["line"] for one in record["lines"] if one["bits_given_rest"] > record["threshold_bits"]}
        assert set(record["reported"]) == above
        for one in record["lines"]:
            if one["line"] in above:
                assert one["lowest_false_alarm_rate"] <= record["false_alarm_rate"]
    (by_default,) = scanned_json(run, file)
    assert by_default["false_alarm_rate"] == 0.01


def test_of_the_held_out_lines_themselves_the_given_share_is_reported(run: Path, tmp_path: Path) -> None:
    # One document, whose beginning was read.
    whole = next(iter(stdlib_packages(["string"])["string"].values()))
    (tmp_path / "string.py").write_text(whole)
    (record,) = scanned_json(run, tmp_path / "string.py", "--false-alarms", 0.2)
    share = len(record["reported"]) / len(record["lines"])
    assert 0.1 < share < 0.3


def test_held_out_lines_are_scored_once(run: Path, file: Path, cache: Path) -> None:
    first = permcode("scan", run, file)
    (stored,) = cache.iterdir()
    values = json.loads(stored.read_text())
    write_document(stored, {"surprises": [1e6] * len(values["surprises"])})
    second = permcode("scan", run, file)
    assert "more than 1000000.00 bits" in second.stdout
    stored.write_text(stored.read_text().replace("1000000", "1000001"))  # damaged: its checksum differs
    assert permcode("scan", run, file).stdout == first.stdout
    assert permcode("scan", run, file, "--fast").exit_code == 0
    assert len(list(cache.iterdir())) == 2, "the fast form has surprises of its own"


def test_a_cache_that_cannot_be_written_costs_only_time(
    run: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = permcode("scan", run, file)
    (tmp_path / "blocked").touch()
    monkeypatch.setattr(held_out_lines, "cache_folder", lambda: tmp_path / "blocked" / "cache")
    assert permcode("scan", run, file).stdout == first.stdout


def test_another_corpus_can_give_the_threshold(run: Path, file: Path, tmp_path: Path) -> None:
    alone = tmp_path / "model"
    shutil.copytree(run / "pretrain-0123456789ab" / "model", alone)
    with_corpus = scanned_json(alone, file, "--corpus", run)
    assert with_corpus == scanned_json(alone, file, "--corpus", run / "prep-0123456789ab")
    assert with_corpus == scanned_json(run, file)
    assert scanned_json(alone, file, "--top", 1)
    assert_bad_input(permcode("scan", alone, file), "there is no prepared corpus beside")


def test_the_table_has_each_line_and_what_would_be_written(run: Path, file: Path) -> None:
    (record,) = scanned_json(run, file, "--top", 3)
    lines = permcode("scan", run, file, "--top", 3).stdout.splitlines()
    assert lines[0] == f"{file}: the 3 most surprising of 4 lines"
    code = CODE.split("\n")
    shown = [line for line in lines[1:] if line.split()[0].isdecimal()]
    assert [int(line.split()[0]) for line in shown] == record["reported"]
    for line in shown:
        assert line.endswith(code[int(line.split()[0]) - 1])
    assert sum("instead" in line for line in lines) == 3


def test_standard_input_and_several_files(run: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"x = '\xff\xfe'\r\ny = 2")
    records = scanned_json(run, file, tmp_path / "odd", "-", "--top", 1, stdin=CODE.encode())
    assert [record["path"] for record in records] == [str(file), str(tmp_path / "odd"), "standard input"]
    for one, other in zip(records[0]["lines"], records[2]["lines"], strict=True):
        assert one["bits_given_rest"] == pytest.approx(other["bits_given_rest"], rel=1e-5)
    assert [one["line"] for one in records[1]["lines"]] == [1, 2]


def test_sarif_is_valid_and_its_fixes_apply(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a file 100% odd ä.py"
    Path(name).write_bytes(CODE.replace("\n", "\r\n").encode())
    done = permcode("scan", run, name, Path(name).absolute(), "--false-alarms", 0.7, "--format", "sarif")
    assert done.exit_code == 0, done.output
    log = json.loads(done.stdout)
    Draft202012Validator.check_schema(SARIF)
    Draft202012Validator(SARIF).validate(log)
    (one,) = log["runs"]
    assert one["properties"]["falseAlarmRate"] == 0.7
    results = one["results"]
    assert len(results) >= 2
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    assert set(uris) == {"a%20file%20100%25%20odd%20%C3%A4.py", Path(name).absolute().as_uri()}
    code = CODE.split("\n")
    num_fixes = 0
    for result in results:
        assert one["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        region = result["locations"][0]["physicalLocation"]["region"]
        line = code[region["startLine"] - 1]
        assert region["snippet"]["text"] == line
        assert (region["startColumn"], region["endLine"], region["endColumn"]) == (
            1,
            region["startLine"],
            len(line) + 1,
        )
        assert result["rank"] >= 100 * (1 - 0.7)
        for fix in result.get("fixes", []):
            ((replacement,),) = (change["replacements"] for change in fix["artifactChanges"])
            assert replacement["insertedContent"]["text"] != line
            assert replacement["deletedRegion"]["startLine"] == region["startLine"]
            num_fixes += 1
    assert num_fixes


def test_the_schema_refuses_what_the_standard_does() -> None:
    valid = Draft202012Validator(SARIF)
    driver = {"driver": {"name": "x"}}
    assert valid.is_valid({"version": "2.1.0", "runs": [{"tool": driver}]})
    for wrong in (
        {"version": "2.0.0", "runs": []},
        {"version": "2.1.0"},
        {"version": "2.1.0", "runs": [{}]},
        {"version": "2.1.0", "runs": [{"tool": driver, "results": [{"ruleId": "x"}]}]},
        {
            "version": "2.1.0",
            "runs": [{"tool": driver, "results": [{"message": {"text": "x"}, "rank": 101}]}],
        },
    ):
        assert not valid.is_valid(wrong)


def test_bad_input_is_one_line(run: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "void.py").touch()
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    for arguments, message in (
        ((run, tmp_path / "binary"), "is binary"),
        ((run, file, tmp_path / "void.py"), "void.py is empty"),
        ((run, "/no/such.py"), "there is no file /no/such.py"),
        ((run, tmp_path), "is a folder: give a file"),
        (("/no/such", file), "/no/such is no folder"),
        ((run, file, "--false-alarms", 0), "above 0 and below 1"),
        ((run, file, "--false-alarms", "nan"), "above 0 and below 1"),
        ((run, file, "--false-alarms", 1e-9), "too few for a false-alarm rate"),
        ((run, file, "--top", 1, "--false-alarms", 0.1), "--top reports lines without a threshold"),
        ((run, file, "--top", 1, "--corpus", run), "--top reports lines without a threshold"),
        ((run, file, "--corpus", tmp_path), "is not a finished prep folder"),
    ):
        assert_bad_input(permcode("scan", *arguments), message)


def test_a_model_whose_objective_never_saw_holes_is_refused(run: Path, file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "one-sided"
    shutil.copytree(run, copy)
    checkpoint = copy / "pretrain-0123456789ab" / "checkpoints" / "step-00000004"
    os.makedirs(checkpoint)
    objective = {"spans": 0.0, "infill": 0.0, "left_to_right": 1.0}
    write_document(checkpoint / "config.json", {"pretrain": {"objective": objective}})
    assert_bad_input(permcode("scan", copy, file, "--top", 1), "trained from left to right only")
    assert_bad_input(permcode("infill", copy, file, "--at", "1:1"), "trained from left to right only")
    write_document(checkpoint / "config.json", {"pretrain": {"objective": {**objective, "spans": 0.1}}})
    assert permcode("scan", copy, file, "--top", 1).exit_code == 0
