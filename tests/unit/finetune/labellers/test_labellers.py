"""Systems that label: classifier, words alone, exact likelihood of hidden words."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.layers.conba import ConbaConfig
from finetune.layers.pooling import PoolingConfig
from finetune.modalities.labelling import Labelled, LabellingData
from finetune.systems.base import Base
from finetune.systems.labellers.classifier import ClassifierConfig
from finetune.systems.labellers.lexical import LexicalLabellerConfig
from finetune.systems.labellers.zero_shot_cloze import ZeroShotClozeConfig, common_margins
from finetune.systems.text_encoder import Truncator
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.text_ranges import ByteRange
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
SINGLE = [Labelled(str(i), (f"x = {WORDS[i]}",), int(i >= 3)) for i in range(6)]
PAIRS = [
    Labelled(f"{a}-{b}", (f"x = {WORDS[a]}", f"y = {WORDS[b]}"), int(a == b))
    for a, b in product(range(3), repeat=2)
]


@pytest.fixture
def base(corpus: PreparedCorpus, model: TwoStreamTransformer) -> Base:
    return Base(ModelDescription.of(model, 64), corpus.tokenizer, None, torch.device("cpu"))


def data(items: list[Labelled]) -> LabellingData:
    return LabellingData(items, [], [])


def nothing(done: int) -> None:
    pass


@pytest.mark.parametrize(
    ("items", "changed"),
    [
        (SINGLE, {}),
        (SINGLE, {"pooling": PoolingConfig(kind="conba", conba=ConbaConfig(dim=32))}),
        (PAIRS, {"reading": "apart"}),
        (
            PAIRS,
            {"reading": "apart", "pooling": PoolingConfig(kind="conba", conba=ConbaConfig(form="diagonal"))},
        ),
        (PAIRS, {"reading": "together", "pooling": PoolingConfig(kind="attention")}),
        (
            PAIRS,
            {"reading": "together", "pooling": PoolingConfig(kind="conba", conba=ConbaConfig(form="seed"))},
        ),
        (SINGLE, {"start": "scratch", "network": {"kind": "aligned_rnn"}}),
        (PAIRS, {"start": "scratch", "network": {"kind": "transformer"}, "reading": "together"}),
    ],
    ids=[
        *("one text", "conba", "two apart", "two apart conba", "two together", "two together conba"),
        *("aligned rnn", "two together, transformer"),
    ],
)
def test_a_classifier_learns_its_items(base: Base, items: list[Labelled], changed: dict[str, Any]) -> None:
    config = ClassifierConfig.model_validate({"dropout": 0.0, "hidden_dim": 32, "text_tokens": 16} | changed)
    system = config.build(base, data(items), seed=0)
    learner = system.learner
    assert learner is not None
    optimizer = torch.optim.AdamW([p for p in learner.module.parameters() if p.requires_grad], lr=3e-3)
    for step in range(60):
        optimizer.zero_grad()
        learner.module(learner.batch(range(len(items)), step)).backward()
        optimizer.step()
    learner.module.eval()
    done: list[int] = []
    found = system.probabilities([item.texts for item in items], done.append)
    assert sum(done) == len(items)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.argmax(axis=1).tolist() == [item.label for item in items]
    assert learner.depth("head.1.weight") == 0
    embedding = next(name for name, _ in learner.module.named_parameters() if "embedding" in name)
    assert learner.depth(embedding) == learner.module.encoder.network.config.num_layers + 1


def test_loss_is_cross_entropy(base: Base) -> None:
    system = ClassifierConfig().build(base, data(SINGLE), seed=0)
    assert system.learner is not None
    module = system.learner.module.eval()
    batch = system.learner.batch([0, 5], draw=0)
    with torch.no_grad():
        log_probability = module.scores(batch.inputs).log_softmax(dim=-1)
        wanted = -(log_probability[0, 0] + log_probability[1, 1]) / 2
        torch.testing.assert_close(module(batch), wanted)


def test_padding_and_company_do_not_change_a_label(base: Base) -> None:
    config = ClassifierConfig(pooling=PoolingConfig(kind="conba"))
    module = config.build(base, data(SINGLE), seed=0).learner
    assert module is not None
    module.module.eval()
    for parameter in module.module.encoder.pooling.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    with torch.no_grad():
        together = module.module.scores(module.batch(range(6), 0).inputs)
        alone = [module.module.scores(module.batch([i], 0).inputs)[0] for i in range(6)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_two_texts_together_are_one_reading_with_a_separator(base: Base, corpus: PreparedCorpus) -> None:
    config = ClassifierConfig(reading="together", text_tokens=2)
    system = config.build(base, data(PAIRS), seed=0)
    assert system.learner is not None
    (reading,) = system.learner.batch([0], draw=0).inputs
    assert reading.tokens_BL.shape == (1, 5)
    assert reading.tokens_BL[0, 2] == corpus.tokenizer.special_id("<sep>")
    assert system.cut["train_texts"] == 18


def test_of_two_texts_together_each_has_its_own_vector(base: Base) -> None:
    # Embedded tokens have seen nothing of each other yet.
    config = ClassifierConfig(reading="together", pooling=PoolingConfig(layers="bottom"))
    learner = config.build(base, data(PAIRS), seed=0).learner
    assert learner is not None
    encoder, separator_id = learner.module.encoder, base.tokenizer.special_id("<sep>")
    truncator = Truncator(base.tokenizer, base.device)
    sides = [truncator.tokens([item.texts[side] for item in PAIRS], 16, None) for side in (0, 1)]
    joined = [np.concatenate([one, [separator_id], other]) for one, other in zip(*sides, strict=True)]
    with torch.no_grad():
        found = encoder.both(truncator.pad(joined), separator_id)
        for vector_BE, rows in zip(found, sides, strict=True):
            torch.testing.assert_close(vector_BE, encoder(truncator.pad(rows)))


def test_items_of_another_kind_are_refused(base: Base) -> None:
    with pytest.raises(UserError, match="no labelled items"):
        ClassifierConfig().build(base, data([]), seed=0)
    with pytest.raises(UserError, match="items have 3 texts"):
        ClassifierConfig().build(base, data([Labelled("a", ("x", "y", "z"), 0)]), seed=0)
    with pytest.raises(UserError, match="item 7 has 2 texts, but this system labels items of 1"):
        ClassifierConfig().build(base, data([*SINGLE, PAIRS[0]]), seed=0)


def test_words_alone_tell_what_they_can() -> None:
    for items in (SINGLE, PAIRS):
        system = LexicalLabellerConfig().build(None, data(items * 100), seed=0)
        found = system.probabilities([item.texts for item in items], nothing)
        assert found.argmax(axis=1).tolist() == [item.label for item in items]
    frequent = LexicalLabellerConfig(method="most_frequent").build(None, data(PAIRS), seed=0)
    np.testing.assert_allclose(frequent.probabilities([("a", "b")], nothing), [[6 / 9, 3 / 9]])


def test_words_alone_take_texts_without_words_and_labels_never_shown() -> None:
    items = [Labelled("a", ("(",), 0), Labelled("b", (")",), 1)]
    system = LexicalLabellerConfig().build(None, LabellingData(items, [], [Labelled("c", ("x",), 2)]), 0)
    found = system.probabilities([("[",), ("",)], nothing)
    assert found.shape == (2, 3)
    assert not found[:, 2].any()
    one_label = LexicalLabellerConfig().build(None, data(items[:1]), seed=0)
    assert one_label.probabilities([("x",)], nothing).tolist() == [[1.0]]
    with pytest.raises(UserError, match="train split is empty"):
        LexicalLabellerConfig().build(None, data([]), seed=0)


def test_cloze_is_the_exact_likelihood_of_the_place(base: Base, corpus: PreparedCorpus) -> None:
    system = ZeroShotClozeConfig().build(base, data([]), seed=0)
    lm = PermutationLM(system.module, corpus.tokenizer, 64)
    before, behind = "x = ", "(a, b)\nreturn x"
    left, right = common_margins(corpus.tokenizer, before.encode(), [b"max", b"min"], behind.encode())
    wanted = [
        lm.score_part(
            before + word + behind, ByteRange(4 - left, 4 + len(word) + right)
        ).scores.log_likelihood
        for word in ("max", "min")
    ]
    assert system.log_likelihoods((f"{before}<mask>{behind}",)) == pytest.approx(wanted)
    found = system.probabilities([(f"{before}<mask>{behind}",)], nothing)
    assert found[0, 0] == pytest.approx(1 / (1 + np.exp(wanted[1] - wanted[0])))


@pytest.mark.parametrize("words", [["max", "min"], ["a", "while x"], ["return", "    "]])
@pytest.mark.parametrize(("before", "behind"), [("x = ", "(a)"), ("", ""), ("\n    ", "\n"), ("pre", "post")])
def test_every_candidate_is_scored_over_the_same_bytes(
    corpus: PreparedCorpus, words: list[str], before: str, behind: str
) -> None:
    tokenizer = corpus.tokenizer
    data = [word.encode() for word in words]
    left, right = common_margins(tokenizer, before.encode(), data, behind.encode())
    assert 0 <= left <= len(before)
    assert 0 <= right <= len(behind)
    for word in words:
        lengths = tokenizer.token_bytes[tokenizer.encode(before + word + behind)]
        edges = {0, *np.cumsum(lengths).tolist()}
        assert {len(before) - left, len(before) + len(word) + right} <= edges


def test_cloze_items_and_labels_must_fit(base: Base) -> None:
    system = ZeroShotClozeConfig().build(base, data([]), seed=0)
    for text in ("no mask", "<mask> and <mask>"):
        with pytest.raises(UserError, match="must be one text with <mask> once in it"):
            system.probabilities([(text,)], nothing)
    with pytest.raises(UserError, match="the task has 3 labels, but zero_shot_cloze has 2 words"):
        ZeroShotClozeConfig().build(base, data([Labelled("a", ("x",), 2)]), seed=0)


def test_what_stands_around_the_mask_is_read_of_a_long_text(base: Base) -> None:
    truncator = Truncator(base.tokenizer, base.device)
    text = "first line\n" * 30 + "x = <mask>(a, b)\n" + "last line\n" * 30
    (row,) = truncator.tokens([text], 24, "texts", "<mask>")
    assert len(row) == 24
    assert "<mask>" in base.tokenizer.decode(row)
    assert truncator.cut == {"texts": 1}
    near_start = truncator.tokens(["<mask>" + " b" * 50], 8, None, "<mask>")[0]
    near_end = truncator.tokens(["b " * 50 + "<mask>"], 8, None, "<mask>")[0]
    assert base.tokenizer.decode(near_start).startswith("<mask>")
    assert base.tokenizer.decode(near_end).endswith("<mask>")
    assert len(near_end) == 8
    (plain,) = truncator.tokens([text], 24, None)
    assert base.tokenizer.decode(plain).startswith("first line")
