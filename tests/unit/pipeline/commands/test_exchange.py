"""`permcode import` and `permcode export`: what they say and how they end."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli import app
from pretrain.checkpoint.snapshot import StaticFiles
from pretrain.weights import ModelDescription, load_pretrained, save_model
from tests.checkpoints import IDENTITY, write_checkpoint
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus


def permcode(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a model in it."""
    corpus = write_corpus(tmp_path / "prep", {"train": stdlib_packages(["bisect"])})
    model = tiny_model(corpus.tokenizer.vocab_size)
    save_model(model, tmp_path / "run" / "pretrain-0" / "model", tmp_path / "prep" / "tokenizer.json")
    return tmp_path / "run"


def test_a_run_goes_out_and_comes_back(run: Path, tmp_path: Path) -> None:
    out = permcode("export", run, "--to", "hf", tmp_path / "hf")
    assert out.exit_code == 0, out.stderr
    assert str(run / "pretrain-0" / "model") in out.stdout
    back = permcode("import", "--from", "hf", tmp_path / "hf", "--out", tmp_path / "back")
    assert back.exit_code == 0, back.stderr
    assert "2 layers of 32, memory of 32 tokens" in back.stdout
    one, other = load_pretrained(run / "pretrain-0" / "model"), load_pretrained(tmp_path / "back")
    assert all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_foreign_tokenizer_is_reported(run: Path, tmp_path: Path) -> None:
    permcode("export", run, "--to", "hf", tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").unlink()
    result = permcode(
        "import", "--from", "hf", tmp_path / "hf", "--out", tmp_path / "back", "--memory-tokens", 0
    )
    assert result.exit_code == 0, result.stderr
    assert "memory of 0 tokens" in result.stdout
    assert "its tokenizer is not permcode's" in result.stdout


def test_a_skipped_damaged_checkpoint_is_reported_on_stderr(run: Path, tmp_path: Path) -> None:
    model = run / "pretrain-0" / "model"
    network = load_pretrained(model)
    description = ModelDescription.of(network, 16)
    static = StaticFiles.of_pretraining(IDENTITY, description, (model / "tokenizer.json").read_bytes())
    checkpoints = tmp_path / "training" / "pretrain-0" / "checkpoints"
    for step in (1, 2):
        write_checkpoint(checkpoints, step, static=static, weights=dict(network.named_parameters()))
    (checkpoints / "step-00000002" / "weights-00000.safetensors").write_bytes(b"")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("x = 1\n")
    for arguments in (
        ("export", tmp_path / "training", "--to", "hf", tmp_path / "hf"),
        ("complete", tmp_path / "training", "x", "--max-tokens", 1),
        ("infill", tmp_path / "training", prompt, "--at", "1:2", "--length", 1),
        ("score", tmp_path / "training", prompt),
        ("embed", tmp_path / "training", prompt),
    ):
        result = permcode(*arguments)
        assert result.exit_code == 0, result.stderr
        assert result.stderr.startswith(
            "permcode: warning: checkpoint step-00000002: weights-00000.safetensors is"
        )
        assert "step-00000002" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "--from", "hf", "NOWHERE", "--out", "OUT"), "is no Hugging Face model"),
        (("import", "--from", "hf", "RUN", "--out", "OUT"), "is no Hugging Face model"),
        (("export", "NOWHERE", "--to", "hf", "OUT"), "is no folder"),
        (("export", "EMPTY", "--to", "hf", "OUT"), "holds no model"),
        (("export", "RUN", "--to", "hf", "EMPTY/.."), "is there already"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], message: str, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"NOWHERE": "nowhere", "RUN": "run", "EMPTY": "empty", "OUT": "out", "EMPTY/..": "empty/.."}
    before = sorted(tmp_path.rglob("*"))
    result = permcode(*(tmp_path / places[one] if one in places else one for one in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("permcode: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [("import", "--from", "onnx", "A", "--out", "B"), ("export", "A", "B")])
def test_an_unknown_format_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert permcode(*arguments).exit_code == 2
