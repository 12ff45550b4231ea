"""score and embed from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pretrain.inference.language_model import PermutationLM
from pretrain.inference.text_ranges import ByteRange
from pretrain.weights import save_model
from tests.unit.pipeline.commands.model_commands.command import CODE, SEGMENT, permcode


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


def test_figures_too_large_for_a_number_are_reported(model: Path, file: Path, tmp_path: Path) -> None:
    lm = PermutationLM.from_run(model)
    with torch.no_grad():
        lm.network.output_bias_V[0] = 1e30
    tokenizer = next(model.rglob("tokenizer.json"))
    save_model(lm.network, tmp_path / "model", tokenizer, segment_tokens=SEGMENT)
    printed = permcode("score", tmp_path / "model", file)
    assert printed.exit_code == 0, printed.stderr
    assert "perplexity inf per token" in printed.stdout
    (line,) = permcode("score", tmp_path / "model", file, "--json", "--per-token").stdout.splitlines()
    record = json.loads(line, parse_constant=pytest.fail)
    assert record["perplexity_per_token"] is None
    assert record["bits"] > 1e30


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
