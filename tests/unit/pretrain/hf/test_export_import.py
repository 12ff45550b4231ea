"""Folders to and from Hugging Face's format: all of it comes back, or one line says why not."""

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from torch import Tensor

from cluster.errors import UserError
from cluster.jobs import PACKAGES
from data_prep.tokenizer import CodeTokenizer
from pretrain.hf.export_import import export_to_hf, import_from_hf, whole_folder
from pretrain.weights import load_pretrained
from tests.unit.pretrain.hf.conftest import KINDS, SMALL

ROOT = Path(__file__).resolve().parents[4]
Save = Callable[..., Path]


@pytest.fixture
def exported(save: Save, tmp_path: Path) -> Path:
    """A folder in Hugging Face's format."""
    export_to_hf(save(tmp_path / "model"), tmp_path / "hf")
    return tmp_path / "hf"


def assert_same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def cut_in_two(folder: Path) -> Path:
    """The same weights as two files and an index; returns the index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[:9], names[9:])):
        file_name = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file_name)
        weight_map.update(dict.fromkeys(part, file_name))
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_comes_back(kind: str, save: Save, tmp_path: Path) -> None:
    model = save(tmp_path / "model", SMALL, kind)
    export_to_hf(model, tmp_path / "hf")
    assert import_from_hf(tmp_path / "hf", tmp_path / "back").reads_text
    assert_same_files(model, tmp_path / "back")


def test_a_model_without_segment_encodings_comes_back_without_them(save: Save, tmp_path: Path) -> None:
    model = save(tmp_path / "model", SMALL.model_copy(update={"segment_encodings": False}))
    export_to_hf(model, tmp_path / "hf")
    import_from_hf(tmp_path / "hf", tmp_path / "back")
    assert_same_files(model, tmp_path / "back")


def test_weights_in_several_files_are_read(exported: Path, tmp_path: Path) -> None:
    cut_in_two(exported)
    import_from_hf(exported, tmp_path / "back")
    assert_same_files(tmp_path / "model", tmp_path / "back")


def test_bfloat16_weights_are_read_as_they_are(exported: Path, tmp_path: Path) -> None:
    path = exported / "model.safetensors"
    halves = {name: tensor.bfloat16() for name, tensor in load_file(path).items()}
    save_file(halves, path)
    import_from_hf(exported, tmp_path / "back")
    bias = load_pretrained(tmp_path / "back").output_bias_V
    assert bias.dtype == torch.float32
    assert torch.equal(bias, halves["lm_loss.bias"].float())


def test_memory_is_as_long_as_the_user_says(exported: Path, tmp_path: Path) -> None:
    assert import_from_hf(exported, tmp_path / "back", memory_tokens=11).config.memory_tokens == 11
    assert load_pretrained(tmp_path / "back").config.memory_tokens == 11


@pytest.mark.parametrize("memory_tokens", [-1, 10**30])
def test_a_memory_that_cannot_be_is_refused_in_one_line(
    memory_tokens: int, exported: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"memory_tokens={memory_tokens} cannot be") as caught:
        import_from_hf(exported, tmp_path / "back", memory_tokens)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "back").exists()


def test_a_foreign_tokenizer_is_kept_and_goes_back(exported: Path, tmp_path: Path) -> None:
    foreign = Tokenizer(models.WordLevel({"<unk>": 0, "word": 1}, unk_token="<unk>")).to_str()
    (exported / "tokenizer.json").write_text(foreign)
    (exported / "spiece.model").write_bytes(b"a SentencePiece model")
    config = json.loads((exported / "config.json").read_text())
    (exported / "config.json").write_text(json.dumps(config | {"pad_token_id": 5, "bos_token_id": 3}))
    imported = import_from_hf(exported, tmp_path / "model-2")
    assert not imported.reads_text
    with pytest.raises(UserError, match="is not one of permcode's"):
        CodeTokenizer.load(tmp_path / "model-2" / "tokenizer.json")
    export_to_hf(tmp_path / "model-2", tmp_path / "hf-2")
    for name in ("tokenizer.json", "spiece.model", "tokenizer_config.json", "model.safetensors"):
        assert (tmp_path / "hf-2" / name).read_bytes() == (exported / name).read_bytes(), name
    back = json.loads((tmp_path / "hf-2" / "config.json").read_text())
    assert (back["pad_token_id"], back["bos_token_id"], back["eos_token_id"]) == (5, 3, 1)
    assert back["permcode"]["tokenizer_sha256"] is None


def test_a_folder_without_tokenizer_is_imported(exported: Path, tmp_path: Path) -> None:
    (exported / "tokenizer.json").unlink()
    assert not import_from_hf(exported, tmp_path / "back").reads_text
    load_pretrained(tmp_path / "back")


def test_a_tokenizer_of_another_size_is_refused(
    exported: Path, tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    content = json.loads(tokenizers["bpe"].read_text())
    last = max(content["model"]["vocab"], key=content["model"]["vocab"].__getitem__)
    del content["model"]["vocab"][last]
    content["model"]["merges"] = content["model"]["merges"][:-1]
    (exported / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="they do not belong together"):
        import_from_hf(exported, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_another_sentencepiece_tokenizer_than_the_exported_is_refused(
    save: Save, tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    export_to_hf(save(tmp_path / "model", SMALL, "sentencepiece_bpe"), tmp_path / "hf")
    shutil.copy(tokenizers["sentencepiece_unigram"], tmp_path / "hf" / "permcode_tokenizer.json")
    with pytest.raises(
        UserError, match=r"permcode_tokenizer\.json is not the tokenizer that config\.json names"
    ):
        import_from_hf(tmp_path / "hf", tmp_path / "back")


def test_pickled_weights_are_refused(exported: Path, tmp_path: Path) -> None:
    (exported / "model.safetensors").rename(exported / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin is a pickle.*convert it to safetensors"):
        import_from_hf(exported, tmp_path / "back")


def test_missing_weights_are_named(exported: Path, tmp_path: Path) -> None:
    (exported / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing"):
        import_from_hf(exported, tmp_path / "back")


@pytest.mark.parametrize("size", [0, 5, 1000, -1])
def test_cut_weights_are_named(size: int, exported: Path, tmp_path: Path) -> None:
    path = exported / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        import_from_hf(exported, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda bias: bias.fill_(torch.inf), "has numbers that are not finite in float32"),
        (lambda bias: bias.double().fill_(1e300), "has numbers that are not finite in float32"),
        (lambda bias: bias.to(torch.complex64), "has complex numbers"),
    ],
)
def test_weights_that_no_model_computes_with_are_named(
    change: Callable[[Tensor], Tensor], message: str, exported: Path, tmp_path: Path
) -> None:
    path = exported / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"lm_loss.bias": change(tensors["lm_loss.bias"])}, path)
    with pytest.raises(UserError, match=rf"model\.safetensors: lm_loss\.bias {message}"):
        import_from_hf(exported, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "no weight_map"),
        ({"weight_map": {"a": "../model/model.safetensors"}}, "is not in the folder"),
        ({"weight_map": {"a": "gone.safetensors"}}, "is not in the folder"),
        ({"weight_map": {"a": 3}}, "is not in the folder"),
        ({"weight_map": {"a": "a\n" * 2500}}, r"names 'a\\na[an\\]+, which is not in the folder"),
        (
            {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": 3}},
            "names 3, which is not in the folder",
        ),
        ({"weight_map": {"a": ["model.safetensors"]}}, "is not in the folder"),
        ({"weight_map": {"a": "model-00001-of-00002.safetensors"}}, "in none of its files"),
    ],
)
def test_a_damaged_index_is_named(content: object, message: str, exported: Path, tmp_path: Path) -> None:
    cut_in_two(exported).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        import_from_hf(exported, tmp_path / "back")


@pytest.mark.parametrize("content", ["a file", "a folder that is not empty"])
def test_what_is_there_already_is_not_overwritten(content: str, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "back"
    if content == "a file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "mine").write_text("mine")
    for action in (lambda: import_from_hf(exported, out), lambda: export_to_hf(tmp_path / "model", out)):
        with pytest.raises(UserError, match="is there already"):
            action()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "hf", "model"]


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with whole_folder(tmp_path / "out") as folder:
            (folder / "half").write_text("half")
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_is_named(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        import_from_hf(exported, tmp_path / "file" / "back")


def test_nothing_here_imports_the_library() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any(name.split(".")[0] == "transformers" for name in names), path


def test_a_damaged_model_is_not_exported(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path / "model") / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"model\.safetensors is missing or damaged"):
        export_to_hf(tmp_path / "model", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
