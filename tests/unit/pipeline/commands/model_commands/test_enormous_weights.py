"""Weights that are finite, but too large to compute with."""

from pathlib import Path

import pytest
import torch

from cluster.errors import UserError
from pretrain.inference.language_model import PermutationLM
from pretrain.weights import save_model
from tests.unit.pipeline.commands.model_commands.command import SEGMENT, assert_bad_input, permcode


@pytest.fixture(scope="module")
def enormous(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lm = PermutationLM.from_run(model)
    with torch.no_grad():
        for name, parameter in lm.network.named_parameters():
            if "feed_forward.up" in name or "embedding" in name or "query_start" in name:
                parameter.mul_(1e30)
    folder = tmp_path_factory.mktemp("enormous")
    tokenizer = next(model.rglob("tokenizer.json"))
    save_model(lm.network, folder, tokenizer, segment_tokens=SEGMENT)
    return folder


AT = ("--at", "2:5")


@pytest.mark.parametrize(
    "arguments",
    [
        ("embed", "{model}", "{file}", "{file}"),
        ("embed", "{model}", "{file}", "--out", "{out}.jsonl"),
        ("embed", "{model}", "{file}", "--out", "{out}.npz"),
        ("score", "{model}", "{file}"),
        ("score", "{model}", "{file}", "--json", "--per-token"),
        ("score", "{model}", "{file}", "--lines", "1,2", "--json"),
        ("complete", "{model}", "def f("),
        ("complete", "{model}", "def f(", "--num", "3", "--echo"),
        ("complete", "{model}", "def f(", "--temperature", "0"),
        ("complete", "{model}", "def f(", "--beam", "3"),
        ("infill", "{model}", "{file}", *AT),
        ("infill", "{model}", "{file}", *AT, "--whole", "--temperature", "1"),
        ("infill", "{model}", "{file}", *AT, "--length", "3"),
        ("infill", "{model}", "{file}", *AT, "--length", "3", "--beam", "2"),
        ("infill", "{model}", "{file}", *AT, "--length", "3", "--order", "most_certain", "--at-once", "2"),
    ],
)
def test_numbers_that_are_not_finite_are_reported_in_one_line(
    arguments: tuple[str, ...], enormous: Path, file: Path, tmp_path: Path
) -> None:
    given = [one.format(model=enormous, file=file, out=tmp_path / "vectors") for one in arguments]
    assert_bad_input(permcode(*given), "not finite: the model's weights are too large to compute with")
    assert list(tmp_path.iterdir()) == [file]


def test_nothing_is_streamed_of_numbers_that_are_not_finite(enormous: Path) -> None:
    lm, streamed = PermutationLM.from_run(enormous), list[str]()
    with pytest.raises(UserError, match="the scores of new tokens are not finite"):
        lm.complete("def f(", on_text=lambda _, text: streamed.append(text))
    assert streamed == []
    with pytest.raises(UserError, match="the numbers of text 1's vector are not finite"):
        lm.embed(["x", "y"])
    with pytest.raises(UserError, match="the log-probabilities of text 1 are not finite"):
        lm.score("x = 1")
