"""complete, infill, score and embed from the command line, with a tiny model of random weights."""

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from cluster.storage import sha256_bytes, sha256_file
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizer_training import train_tokenizer
from data_prep.tokenizers.config import TokenizerConfig
from pipeline.cli import app
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.sampling import Sampling
from pretrain.inference.text_ranges import ByteRange
from pretrain.model.config import AbsoluteLearnedPositions, ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import save_model
from tests.example_corpus import tiny_model

SEGMENT = 64
CODE = "def add(first, second):\n    return first + second  # ä\n\n\ndef nothing():\n    pass\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_tokenizer([CODE.encode()] * 3, TokenizerConfig(vocab_size=350)))
    return path


@pytest.fixture(scope="module")
def model(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose pretraining is finished."""
    run = tmp_path_factory.mktemp("run")
    loaded = CodeTokenizer.load(tokenizer)
    network = tiny_model(loaded.vocab_size)
    with torch.no_grad():  # so that lines end now and then
        network.output_bias_V[int(loaded.encode("\n")[0])] += 4.0
    save_model(network, run / "pretrain-0123456789ab" / "model", tokenizer, segment_tokens=SEGMENT)
    return run


@pytest.fixture(scope="module")
def short_model(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can place 24 tokens."""
    config = ModelConfig(
        num_layers=1,
        model_dim=16,
        num_heads=1,
        head_dim=16,
        ffn_dim=16,
        memory_tokens=0,
        positions=AbsoluteLearnedPositions(max_positions=24),
    )
    network = TwoStreamTransformer(config, CodeTokenizer.load(tokenizer).vocab_size)
    folder = tmp_path_factory.mktemp("short")
    save_model(network, folder, tokenizer, segment_tokens=24)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def permcode(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def assert_bad_input(result: Result, message: str) -> None:
    assert (result.exit_code, result.stdout_bytes) == (2, b""), result.output
    assert result.stderr.startswith("permcode: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_complete_writes_the_new_text_alone_and_the_seed_decides_it(model: Path) -> None:
    texts = [permcode("complete", model, "def add", "--max-tokens", 12, "--seed", seed) for seed in (0, 0, 1)]
    assert all(text.exit_code == 0 for text in texts), texts[0].stderr
    assert texts[0].stdout_bytes == texts[1].stdout_bytes != texts[2].stdout_bytes
    expected = PermutationLM.from_run(model).complete("def add", max_new_tokens=12)[0].data
    assert (
        permcode("complete", model, "def add", "--max-tokens", 12, "--temperature", 0).stdout_bytes
        == expected
    )
    echoed = permcode("complete", model, "def add", "--max-tokens", 12, "--temperature", 0, "--echo")
    assert echoed.stdout_bytes == b"def add" + expected


def test_prompts_come_from_standard_input_and_from_files_whatever_their_bytes(
    model: Path, tmp_path: Path
) -> None:
    odd = b"x = '\xff\xfe'\r\n"
    (tmp_path / "odd").write_bytes(odd)
    options = ("--max-tokens", 6, "--temperature", 0)
    from_file = permcode("complete", model, "--file", tmp_path / "odd", *options)
    from_stdin = permcode("complete", model, "-", *options, stdin=odd)
    assert from_file.exit_code == 0, from_file.stderr
    assert from_file.stdout_bytes == from_stdin.stdout_bytes
    assert from_file.stdout_bytes == PermutationLM.from_run(model).complete(odd, max_new_tokens=6)[0].data


def test_several_texts_have_a_line_before_each(model: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"def {name}")
    files = ("--file", tmp_path / "a", "--file", tmp_path / "b")
    text = permcode("complete", model, *files, "--num", 2, "--max-tokens", 3).stdout
    for name in ("a", "b"):
        for number in (1, 2):
            assert f"==> {tmp_path / name}, {number} of 2 <==\n" in text
    text = permcode("complete", model, "def a", "--num", 2, "--max-tokens", 3).stdout
    assert text.startswith("==> 1 of 2 <==\n")
    assert "\n==> 2 of 2 <==\n" in text


def test_a_completion_ends_before_a_stop_text(model: Path) -> None:
    options = ("--max-tokens", 60, "--temperature", 1.5)
    whole = permcode("complete", model, "def", *options).stdout_bytes
    assert b"\n" in whole
    line = permcode("complete", model, "def", *options, "--until-line").stdout_bytes
    assert line == whole.split(b"\n")[0]
    character = whole[5:6].decode()
    stopped = permcode("complete", model, "def", *options, "--stop", character).stdout_bytes
    assert stopped == whole.split(whole[5:6])[0]


def test_a_stop_text_may_be_any_bytes(model: Path) -> None:
    options = ("--max-tokens", 60, "--temperature", 3, "--seed", 1)
    whole = permcode("complete", model, "def", *options).stdout_bytes
    byte = next(bytes([value]) for value in whole if value >= 128)
    found = permcode("complete", model, "def", *options, "--stop", os.fsdecode(byte))
    assert found.exit_code == 0
    assert found.stdout_bytes == whole.split(byte)[0]


def test_a_beam_writes_the_best_texts_it_finds(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    best = lm.complete("def", max_new_tokens=5, beam=3, num_samples=2)
    options = ("--max-tokens", 5, "--beam", 3, "--num", 2)
    written = permcode("complete", model, "def", *options)
    assert written.exit_code == 0, written.stderr
    for number, one in enumerate(best, start=1):
        assert f"==> {number} of 2 <==\n".encode() + one.data in written.stdout_bytes
    (file.parent / "b").write_bytes(b"x =")
    both = permcode("complete", model, "--file", file, "--file", file.parent / "b", *options)
    assert both.stdout_bytes.count(b" of 2 <==\n") == 4


def test_infill_fills_the_hole_and_the_file_stays_as_it_is(model: Path, file: Path) -> None:
    start = CODE.encode().index(b"second  # ")
    prefix, suffix = CODE.encode()[:start], CODE.encode()[start:]
    lm = PermutationLM.from_run(model)
    at = ("--at", f"2:{len('    return first + ') + 1}")
    unknown = permcode("infill", model, file, *at, "--max-tokens", 9)
    assert unknown.exit_code == 0, unknown.stderr
    assert unknown.stdout_bytes == lm.infill(prefix, suffix, max_new_tokens=9)[0].data
    unsaid = permcode("infill", model, file, *at).stdout_bytes
    assert unsaid == lm.infill(prefix, suffix, max_new_tokens=SEGMENT // 2)[0].data
    known = permcode("infill", model, file, *at, "--length", 4).stdout_bytes
    assert known == lm.infill(prefix, suffix, length=4)[0].data
    marked = file.with_name("marked.py")
    marked.write_bytes(prefix + b"<hole>" + suffix)
    assert permcode("infill", model, marked, "--length", 4).stdout_bytes == known
    assert permcode("infill", model, marked, "--length", 4, "--whole").stdout_bytes == prefix + known + suffix
    assert permcode("infill", model, "-", "--length", 4, stdin=marked.read_bytes()).stdout_bytes == known
    assert (file.read_bytes(), marked.read_bytes()) == (prefix + suffix, prefix + b"<hole>" + suffix)


def test_infill_takes_the_surest_places_first_several_at_once(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    prefix, suffix = CODE.encode()[:4], CODE.encode()[4:]
    expected = lm.infill(prefix, suffix, length=6, order="most_certain", at_once=3)[0].data
    options = ("--at", "1:5", "--length", 6, "--order", "most_certain", "--at-once", 3)
    assert permcode("infill", model, file, *options).stdout_bytes == expected


def test_infill_draws_and_searches_as_complete_does(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    prefix, suffix = CODE.encode()[:4], CODE.encode()[4:]
    drawn = lm.infill(prefix, suffix, max_new_tokens=7, sampling=Sampling(1.0, 50, 0.9, 3), num_samples=2)
    options = ("--temperature", 1, "--top-k", 50, "--top-p", 0.9, "--seed", 3)
    written = permcode(
        "infill", model, file, "--at", "1:5", "--max-tokens", 7, "--num", 2, *options
    ).stdout_bytes
    assert written.startswith(b"==> 1 of 2 <==\n" + drawn[0].data)
    assert b"\n==> 2 of 2 <==\n" + drawn[1].data in written
    beam = permcode("infill", model, file, "--at", "1:5", "--max-tokens", 7, "--beam", 3).stdout_bytes
    assert beam == lm.infill(prefix, suffix, max_new_tokens=7, beam=3)[0].data


def test_score_of_files_says_bits_per_byte_of_each_and_of_all(model: Path, file: Path) -> None:
    other = file.with_name("other.py")
    other.write_bytes(b"x = 1\n" * 100)
    result = permcode("score", model, file, other, "--json", "--per-token")
    assert result.exit_code == 0, result.stderr
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["path"] == str(file)
    spelled = [CODE.encode()[one["start_byte"] :][: one["num_bytes"]] for one in first["tokens"]]
    assert b"".join(spelled) == CODE.encode()
    assert [one["text"] for one in first["tokens"]] == [
        one.decode(errors="backslashreplace") for one in spelled
    ]
    assert first["num_bytes"] == len(CODE.encode())
    assert first["bits_per_byte"] == pytest.approx(
        sum(token["bits"] for token in first["tokens"]) / first["num_bytes"]
    )
    assert first["sees_all"]
    assert not second["sees_all"]
    lines = permcode("score", model, file, other).stdout.splitlines()
    assert lines[0].startswith(f"{file}: {first['bits_per_byte']:.4f} bits per byte")
    assert "too long" not in lines[0]
    assert lines[1].endswith("too long to be seen at once: each token saw the text just before it")
    total = (first["bits"] + second["bits"]) / (first["num_bytes"] + second["num_bytes"])
    assert lines[2].startswith(f"2 files in all: {total:.4f} bits per byte")


def test_score_of_lines_is_that_of_their_tokens_given_the_rest(model: Path, file: Path) -> None:
    start = CODE.index("    return")
    part = ByteRange(start, len(CODE[: CODE.index("\n\n") + 1].encode()))
    lm = PermutationLM.from_run(model)
    expected = lm.score_part(CODE.encode(), part).scores.log_likelihood
    by_line = permcode("score", model, file, "--lines", 2, "--json")
    by_bytes = permcode("score", model, file, "--bytes", f"{part.start}:{part.end}", "--json")
    assert json.loads(by_line.stdout)["log_likelihood"] == pytest.approx(expected)
    assert by_line.stdout == by_bytes.stdout
    printed = permcode("score", model, file, "--lines", "2-2", "--per-token").stdout.splitlines()
    assert len(printed) == 1 + json.loads(by_line.stdout)["num_tokens"]
    assert " bits  " in printed[0]


def test_embed_writes_a_vector_per_file(model: Path, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_bytes(b"x = 1\n" * 100)
    result = permcode("embed", model, file, other)
    assert result.exit_code == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["path"] for record in records] == [str(file), str(other)]
    vectors = np.array([record["vector"] for record in records], dtype=np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    for name in ("v.npz", "v.jsonl"):
        said = permcode("embed", model, file, other, "--out", tmp_path / name).stdout
        assert said == f"2 vectors of 64 numbers in {tmp_path / name}\n"
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["path"].tolist() == [str(file), str(other)]
        np.testing.assert_array_equal(stored["vector"], vectors)
    assert (tmp_path / "v.jsonl").read_text() == result.stdout


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
        ((*COMPLETE,), "say what to complete once"),
        ((*COMPLETE, "x", "--file", "{file}"), "say what to complete once"),
        ((*COMPLETE, ""), "the prompt is empty"),
        ((*COMPLETE, "-"), "standard input is empty"),
        ((*COMPLETE, "--file", "{void}"), "void.py is empty"),
        ((*COMPLETE, "--file", "{empty}"), "is a folder: give a file"),
        ((*COMPLETE, "--file", "/no/such.py"), "there is no file /no/such.py"),
        ((*COMPLETE, "x", "--beam", 2, "--temperature", 1), "--temperature cannot go with it"),
        ((*COMPLETE, "x", "--beam", 2, "--top-k", 1), "--top-k cannot go with it"),
        ((*COMPLETE, "x", "--beam", 2, "--num", 3), "a beam holds as many texts as it is wide"),
        ((*COMPLETE, "x", "--top-p", 0), "top-p must be above 0"),
        (("complete", "{short_model}", "x " * 30), "can place 24"),
        ((*COMPLETE, "x", "--max-tokens", 10**12), "new tokens must be at most 1048576"),
        ((*COMPLETE, "x", "--num", 2, "--temperature", 0), "would be the same text 2 times"),
        ((*COMPLETE, "x", "--temperature", "inf"), "temperature must be 0"),
        (("infill", "/no/such", "{file}", "--at", "1:1"), "/no/such is no folder"),
        (("infill", "{model}", "/no/such.py", "--at", "1:1"), "there is no file /no/such.py"),
        (("infill", "{model}", "{void}", "--at", "1:1"), "void.py is empty"),
        (("infill", "{model}", "{hole}"), "has nothing around its hole"),
        (("infill", "{model}", "{holes}"), "holes.py holds 2 times the text <hole>"),
        (("infill", "{short_model}", "{file}", "--at", "1:1", "--length", 3), "can place 24"),
        ((*INFILL,), "holds 0 times the text <hole>"),
        ((*INFILL, "--at", "8:1"), "line 8 is outside"),
        ((*INFILL, "--at", "1:99"), "column 99 is outside line 1"),
        ((*INFILL, "--at", "1,1"), "--at 1,1: give LINE:COL"),
        ((*INFILL, "--at", "1:1", "--length", 3, "--max-tokens", 3), "give one"),
        ((*INFILL, "--at", "1:1", "--length", 64), "a hole of 64 tokens does not fit"),
        ((*INFILL, "--at", "1:1", "--max-tokens", 10**12), "a hole of 1000000000001 tokens does not fit"),
        ((*INFILL, "--at", "1:1", "--order", "most_certain"), "need a hole of known length"),
        ((*INFILL, "--at", "1:1", "--at-once", 2), "need a hole of known length"),
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
        ((*SCORE, "--bytes", "0:9999"), "0:9999 are not in"),
        ((*SCORE, "--bytes", "0:1", "--lines", "1"), "--lines or --bytes"),
        ((*SCORE, "{file}", "--lines", "1"), "choose a part of one file"),
        (("embed", "{model}", "{void}"), "void.py is empty"),
        ((*EMBED, "--out", "x.csv"), "must end in .npz"),
        ((*EMBED, "--out", "/proc/x.npz"), "/proc/x.npz cannot be written"),
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
    (tmp_path / "empty").mkdir()
    whole = model / "pretrain-0123456789ab" / "model"
    for name in ("damaged", "other_shape", "other_tokenizer"):
        shutil.copytree(whole, tmp_path / name)
    with (tmp_path / "damaged" / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"\x55")
    config = (whole / "config.json").read_text()
    (tmp_path / "other_shape" / "config.json").write_text(config.replace('"ffn_dim": 64', '"ffn_dim": 65'))
    other = train_tokenizer([CODE.encode()] * 3, TokenizerConfig(vocab_size=340))
    (tmp_path / "other_tokenizer" / "tokenizer.json").write_bytes(other)
    hashes = (sha256_file(whole / "tokenizer.json"), sha256_bytes(other))
    (tmp_path / "other_tokenizer" / "config.json").write_text(config.replace(*hashes))
    places = {
        "model": model,
        "short_model": short_model,
        "file": file,
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


def test_an_interruption_is_quiet(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PermutationLM, "complete", interrupt)
    result = permcode("complete", model, "x")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def started(stdout: int, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )


def test_on_a_terminal_text_comes_as_it_is_written_until_ctrl_c(model: Path) -> None:
    ours, theirs = pty.openpty()
    process = started(theirs, "complete", model, "def", "--max-tokens", 1_000_000)
    seen = b""
    while seen.count(b"\n") < 3:
        seen += os.read(ours, 1000)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    os.close(theirs)
    with contextlib.suppress(OSError):  # Linux says EIO at the end of a terminal
        while more := os.read(ours, 1000):
            seen += more
    os.close(ours)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (130, b"")
    text = seen.decode().replace("\r\n", "\n")
    assert text.replace("\n", "").replace("\t", "").isprintable()
    assert text.endswith("\n")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_bytes(CODE.encode() * 100)
    process = started(subprocess.PIPE, "score", model, path, "--per-token")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()
