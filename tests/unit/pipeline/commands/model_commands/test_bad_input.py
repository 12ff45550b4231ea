"""What cannot be done is one line and exit code 2."""

import os
import shutil
from pathlib import Path

import pytest

from cluster.storage import read_document, sha256_bytes, write_document
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizers.config import TokenizerConfig
from tests.unit.pipeline.commands.model_commands.command import CODE, assert_bad_input, permcode

HUGE = "9" * 5000
"""More digits than Python makes a number of."""
COMPLETE = ("complete", "{model}")
INFILL, SCORE, EMBED = ((verb, "{model}", "{file}") for verb in ("infill", "score", "embed"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("complete", "/no/such", "x"), "/no/such is no folder"),
        (("complete", "{empty}", "x"), "holds no model"),
        (("complete", "{damaged}", "x"), "model.safetensors is missing or damaged"),
        (("score", "{other_shape}", "{file}"), "does not fit its config"),
        (("score", "{other_tokenizer}", "{file}"), "the tokenizer has 340 tokens and the model 350"),
        ((*COMPLETE,), "give what to complete in one way"),
        ((*COMPLETE, "x", "--file", "{file}"), "give what to complete in one way"),
        ((*COMPLETE, ""), "the prompt is empty"),
        ((*COMPLETE, "x", "--stop", ""), "a text to stop at is empty"),
        ((*COMPLETE, "-"), "standard input is empty"),
        ((*COMPLETE, "--file", "{void}"), "void.py is empty"),
        ((*COMPLETE, "--file", "{empty}"), "is a folder: give a file"),
        ((*COMPLETE, "--file", "/no/such.py"), "there is no file /no/such.py"),
        ((*COMPLETE, "x", "--beam", 2, "--temperature", 1), "--temperature cannot go with it"),
        ((*COMPLETE, "x", "--beam", 2, "--top-k", 1), "--top-k cannot go with it"),
        ((*COMPLETE, "x", "--beam", 2, "--num", 3), "a beam search returns at most 2 texts"),
        ((*COMPLETE, "x", "--top-p", 0), "top-p must be above 0"),
        (("complete", "{short_model}", "x " * 30), "can place 24"),
        ((*COMPLETE, "x", "--max-tokens", 10**12), "new tokens must be at most 1048576"),
        ((*COMPLETE, "x", "--num", 2, "--temperature", 0), "would be the same text 2 times"),
        ((*COMPLETE, "x", "--temperature", "inf"), "temperature must be 0"),
        (("infill", "/no/such", "{file}", "--at", "1:1"), "/no/such is no folder"),
        (("infill", "{model}", "/no/such.py", "--at", "1:1"), "there is no file /no/such.py"),
        (("infill", "{model}", "{void}", "--at", "1:1"), "void.py is empty"),
        (("infill", "{model}", "{hole}"), "has no text around its hole"),
        (("infill", "{model}", "{holes}", "--beam", 2), "--beam fills one hole"),
        (
            ("infill", "{model}", "{holes}", "--length", 40),
            "from the first hole to the last there are up to 8",
        ),
        ((*INFILL, "--at", "1:1", "--at", "1:1"), "overlap"),
        ((*INFILL, "--at", "1-2", "--at", "2:3"), "overlap"),
        ((*INFILL, "--at", "1-2", "--at", "2-3"), "overlap"),
        ((*INFILL, "--at", "1-99"), "lines 1-99 are not in"),
        ((*INFILL, "--at", "3-2"), "lines 3-2 are not in"),
        ((*INFILL, "--at", "1:1:0"), "at least 1 token, got 0"),
        ((*INFILL, "--at", "1:1", "--whole", "--json"), "--whole writes files, --json figures"),
        (("infill", "{short_model}", "{file}", "--at", "1:1", "--length", 3), "can place 24"),
        ((*INFILL,), "holds no mark <hole>"),
        ((*INFILL, "--at", "8:1"), "line 8 is outside"),
        ((*INFILL, "--at", "1:99"), "column 99 is outside line 1"),
        ((*INFILL, "--at", "1,1"), "--at 1,1: give LINE:COL"),
        ((*INFILL, "--at", f"{HUGE}:1"), "give LINE:COL"),
        ((*INFILL, "--at", "1:1", "--length", 3, "--max-tokens", 3), "give one"),
        ((*INFILL, "--at", "1:1", "--length", 64), "a hole of 64 tokens does not fit"),
        ((*INFILL, "--at", "1:1", "--max-tokens", 10**12), "a hole of 1000000000001 tokens does not fit"),
        ((*INFILL, "--at", "1:1", "--order", "most_certain"), "needs a hole of known length"),
        ((*INFILL, "--at", "1:1", "--at-once", 2, "--beam", 2), "--beam searches from left"),
        ((*INFILL, "--at", "1:1", "--length", 3, "--at-once", 2, "--beam", 2), "--beam searches from left"),
        ((*INFILL, "--at", "1:1", "--beam", 2, "--top-p", 0.5), "--top-p cannot go with it"),
        ((*INFILL, "--at", "1:1", "--num", 2), "would be the same text 2 times"),
        (("score", "/no/such", "{file}"), "/no/such is no folder"),
        (("score", "{model}", "{file}", "{void}"), "void.py is empty"),
        (("score", "{model}", "{file}", "/no/such.py"), "there is no file /no/such.py"),
        ((*SCORE, "--lines", "7-9"), "lines 7-9 are not in"),
        ((*SCORE, "--lines", "0"), "lines 0-0 are not in"),
        ((*SCORE, "--lines", "two"), "--lines two: give FIRST-LAST"),
        ((*SCORE, "--bytes", "5:5"), "bytes 5:5 are not in"),
        ((*SCORE, "--bytes", "5-7"), "--bytes 5-7: give START:END"),
        ((*SCORE, "--lines", f"1-{HUGE}"), "give FIRST-LAST"),
        ((*SCORE, "--bytes", f"0:{HUGE}"), "give START:END"),
        ((*SCORE, "--bytes", "0:9999"), "0:9999 are not in"),
        ((*SCORE, "--bytes", "0:1", "--lines", "1"), "--lines or --bytes"),
        ((*SCORE, "{file}", "--lines", "1"), "select parts of one file"),
        ((*SCORE, "--lines", "1", "--lines", "7-9"), "lines 7-9 are not in"),
        ((*SCORE, "--lines", "1,0"), "lines 0-0 are not in"),
        ((*SCORE, "--lines", "1,,2"), "--lines 1,,2: give FIRST-LAST"),
        ((*SCORE, "--lines", ""), "--lines : give FIRST-LAST"),
        ((*SCORE, "--bytes", "0:1,5:5"), "bytes 5:5 are not in"),
        ((*SCORE, "--bytes", "0:1", "--bytes", "0:9999"), "bytes 0:9999 are not in"),
        (("embed", "{model}", "{void}"), "void.py is empty"),
        ((*EMBED, "--out", "x.csv"), "must end in .npz"),
        ((*EMBED, "{vectors}", "--out", "{vectors}"), "vectors.jsonl is the file that is read"),
        ((*EMBED, "--out", "/proc/x.npz"), "/proc/x.npz cannot be written"),
        ((*EMBED, "--out", "no/such/x.npz"), "there is no folder no/such: create it"),
        ((*EMBED, "--out", "s3://bucket/x.npz"), "--out s3://bucket/x.npz is a URL"),
    ],
)
def test_bad_input_is_one_line_and_nothing_on_standard_output(
    arguments: tuple[object, ...],
    message: str,
    model: Path,
    short_model: Path,
    file: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "void.py").touch()
    (tmp_path / "hole.py").write_bytes(b"<hole>")
    (tmp_path / "holes.py").write_bytes(b"x = <hole> + <hole>")
    (tmp_path / "vectors.jsonl").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    whole = model / "pretrain-0123456789ab" / "model"
    for name in ("damaged", "other_shape", "other_tokenizer"):
        shutil.copytree(whole, tmp_path / name)
    with (tmp_path / "damaged" / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"\x55")
    config = read_document(whole / "config.json")
    other_shape = {**config, "model": {**config["model"], "ffn_dim": 65}}
    write_document(tmp_path / "other_shape" / "config.json", other_shape)
    other = train_tokenizer([CODE.encode()] * 3, TokenizerConfig(vocab_size=340))
    (tmp_path / "other_tokenizer" / "tokenizer.json").write_bytes(other)
    hashes = {**config["sha256"], "tokenizer.json": sha256_bytes(other)}
    write_document(tmp_path / "other_tokenizer" / "config.json", {**config, "sha256": hashes})
    places = {
        "model": model,
        "short_model": short_model,
        "file": file,
        "vectors": tmp_path / "vectors.jsonl",
        "void": tmp_path / "void.py",
        "hole": tmp_path / "hole.py",
        "holes": tmp_path / "holes.py",
        "empty": tmp_path / "empty",
        "damaged": tmp_path / "damaged",
        "other_shape": tmp_path / "other_shape",
        "other_tokenizer": tmp_path / "other_tokenizer",
    }
    assert_bad_input(permcode(*(str(argument).format(**places) for argument in arguments)), message)


@pytest.mark.parametrize("command", ["complete", "infill", "score", "embed"])
def test_every_command_explains_itself(command: str) -> None:
    assert f"\n  {command} " in permcode("--help").stdout
    text = permcode(command, "--help").stdout
    assert f"permcode {command} runs/demo" in text
    assert "RUN" in text


@pytest.mark.parametrize(
    "options",
    [("--max-tokens", 0), ("--temperature", -1), ("--top-k", 0), ("--top-p", 2), ("--beam", 0), ("--num", 0)],
)
def test_numbers_out_of_range_are_refused(options: tuple[str, int], model: Path) -> None:
    result = permcode("complete", model, "x", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert options[0] in result.stderr
