"""Folders that `transformers` reads and writes: the same numbers and the same ids on both sides."""

import tarfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, XLNetConfig, XLNetLMHeadModel

from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig, TokenizerKind
from data_prep.tokenizers.verification import battery
from pretrain.hf.export_import import export_to_hf, import_from_hf
from pretrain.model.config import ModelConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import load_pretrained, save_model
from tests.numerics.hugging_face_twins import fill_with_noise

KINDS: tuple[TokenizerKind, ...] = ("bpe", "sentencepiece_unigram", "sentencepiece_bpe")
FP32_TOLERANCE = 1e-5
ROUNDING_OF_LONG_SUMS = 0.05
"""SentencePiece adds up a text's log-likelihood in float32: among segmentations closer than this chance decides."""
STDLIB = Path(tarfile.__file__).parent


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    texts = [(STDLIB / f"{name}.py").read_bytes() for name in ("tarfile", "argparse", "inspect")]
    # So that every character of every special token's name is in the vocabulary.
    texts.append(" ".join(f"<reserved_{number}> <0x{number:02X}>" for number in range(256)).encode() * 5)
    paths = {kind: folder / f"{kind}.json" for kind in KINDS}
    for kind, path in paths.items():
        path.write_bytes(train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=900)))
    return paths


def saved_model(folder: Path, tokenizer: Path, **change: Any) -> TwoStreamTransformer:
    shape = {
        "num_layers": 3,
        "model_dim": 24,
        "num_heads": 3,
        "head_dim": 8,
        "ffn_dim": 40,
        "memory_tokens": 9,
    }
    config = ModelConfig(**(shape | {"segment_encodings": True} | change))
    model = TwoStreamTransformer(config, CodeTokenizer.load(tokenizer).vocab_size)
    fill_with_noise(model, seed=1)
    save_model(model, folder, tokenizer)
    return model.eval()


@contextmanager
def quiet_library() -> Iterator[None]:
    """Bars on stderr and warnings about its own code are the library's business."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="transformers")
        warnings.filterwarnings("ignore", module="huggingface_hub")
        yield


def logits_of_both(ours: TwoStreamTransformer, theirs: Any) -> tuple[Tensor, Tensor]:
    """The last token of each of two texts, made without either model's help, from all tokens before it."""
    generator = torch.Generator().manual_seed(11)
    tokens_BL = torch.randint(0, ours.vocab_size, (2, 12), generator=generator)
    rank_BL = torch.zeros_like(tokens_BL)
    rank_BL[:, -1] = 1
    content = TokenLayout.contiguous(rank_BL, torch.zeros_like(tokens_BL))
    perm_mask_BLL = torch.zeros(2, 12, 12)
    perm_mask_BLL[:, :, -1] = 1.0
    target_mapping_BPL = torch.zeros(2, 1, 12)
    target_mapping_BPL[:, :, -1] = 1.0
    with torch.no_grad():
        mine = ours(tokens_BL, content, content.at(torch.full((2, 1), 11))).logits_BPV
        expected = theirs(tokens_BL, perm_mask=perm_mask_BLL, target_mapping=target_mapping_BPL).logits
    return mine, expected


@pytest.mark.parametrize(
    "change", [{}, {"tie_embeddings": False, "segment_encodings": False, "memory_tokens": 0}]
)
def test_what_is_exported_computes_the_same_there(
    change: dict[str, Any], tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    ours = saved_model(tmp_path / "model", tokenizers["bpe"], **change)
    export_to_hf(tmp_path / "model", tmp_path / "hf")
    with quiet_library():
        theirs, report = XLNetLMHeadModel.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(report.values()), report
    mine, expected = logits_of_both(ours, theirs.eval())
    assert (mine - expected).abs().max() < FP32_TOLERANCE


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("shard_size", ["1GB", "8KB"])
def test_what_the_library_saves_computes_the_same_here(tie: bool, shard_size: str, tmp_path: Path) -> None:
    config = XLNetConfig(
        vocab_size=101, d_model=24, n_layer=2, n_head=2, d_inner=36, mem_len=7, tie_word_embeddings=tie
    )
    theirs = XLNetLMHeadModel(config).eval()
    fill_with_noise(theirs, seed=2)
    with quiet_library():
        theirs.save_pretrained(tmp_path / "hf", max_shard_size=shard_size)
    assert (tmp_path / "hf" / "model.safetensors").exists() == (shard_size == "1GB")
    imported = import_from_hf(tmp_path / "hf", tmp_path / "model")
    assert imported.num_parameters == sum(parameter.numel() for parameter in theirs.parameters())
    ours = load_pretrained(tmp_path / "model").eval()
    assert ours.config.memory_tokens == 7
    mine, expected = logits_of_both(ours, theirs)
    assert (mine - expected).abs().max() < FP32_TOLERANCE
    export_to_hf(tmp_path / "model", tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    state = theirs.state_dict()
    assert set(state) - set(again) == ({"lm_loss.weight"} if tie else set())
    assert all(torch.equal(again[name], state[name]) for name in again)


def likelihood(model: Path) -> Callable[[list[int]], float]:
    """The log-likelihood of tokens under a SentencePiece unigram model."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return lambda ids: sum(processor.get_score(number) for number in ids)


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_reads_the_same_ids_and_text(
    kind: str, tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    saved_model(tmp_path / "model", tokenizers[kind])
    export_to_hf(tmp_path / "model", tmp_path / "hf")
    with quiet_library():
        theirs = AutoTokenizer.from_pretrained(tmp_path / "hf")
    ours = CodeTokenizer.load(tokenizers[kind])
    texts = [text.decode() for text in battery()]
    texts += [(STDLIB / f"{name}.py").read_text() for name in ("ast", "enum", "json/decoder")]
    if kind != "bpe":
        texts = [text for text in texts if "\u2581" not in text]
    score = likelihood(tmp_path / "hf" / "spiece.model") if kind == "sentencepiece_unigram" else None
    for text in texts:
        ids, found = ours.encode(text).tolist(), theirs(text)["input_ids"]
        if score is not None:
            assert abs(score(found) - score(ids)) < ROUNDING_OF_LONG_SUMS, text[:60]
        else:
            assert found == ids, text[:60]
        assert theirs.decode(ours.encode(text).tolist()) == text
    for token, number in (("<pad>", 0), ("<eod>", 1), ("<sep>", 5), ("<mask>", 8), ("<hole>", 6)):
        assert theirs.convert_tokens_to_ids(token) == number == ours.special_id(token)
    assert (theirs.pad_token, theirs.eos_token, theirs.mask_token) == ("<pad>", "<eod>", "<mask>")
    assert theirs("<mask>", split_special_tokens=False)["input_ids"] == [8]


def test_what_the_library_saves_again_keeps_the_tokenizer(
    tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    """As after a finetune there."""
    ours = saved_model(tmp_path / "model", tokenizers["bpe"])
    export_to_hf(tmp_path / "model", tmp_path / "hf")
    with quiet_library():
        AutoModelForCausalLM.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "again")
        AutoTokenizer.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "again")
    assert import_from_hf(tmp_path / "again", tmp_path / "back").reads_text
    back = load_pretrained(tmp_path / "back")
    assert back.config == ours.config
    assert all(one.equal(other) for one, other in zip(ours.parameters(), back.parameters(), strict=True))
    text = (STDLIB / "enum.py").read_text()
    before, after = (
        CodeTokenizer.load(path) for path in (tokenizers["bpe"], tmp_path / "back" / "tokenizer.json")
    )
    assert before.encode(text).tolist() == after.encode(text).tolist()
