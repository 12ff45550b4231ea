"""The prefix-LM's training loss is the exact likelihood, and cached decoding gives the scores that are trained.

Shapes: B lanes, P predictions, X predictions of all lanes, V vocabulary.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from finetune.decoding.config import DecodingConfig
from finetune.modalities.writing import Pair
from finetune.systems.writers.permutation_lm import PermutationWriter, PermutationWriterConfig
from finetune.systems.writers.prefix_layout import PrefixLayout, side_by_side
from finetune.systems.writers.sequences import Sequences
from pretrain.inference.completion import Continuation
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.scoring import score_chosen
from pretrain.model.config import PositionsConfig
from tests.example_corpus import stdlib_packages, write_corpus
from tests.small_models import ABSOLUTE, RELATIVE
from tests.unit.finetune.systems.toys import as_data, hole_pairs, toy_base, toy_pairs

_CONFIG = PermutationWriterConfig(
    start="scratch",
    source_tokens=40,
    target_tokens=24,
    label_smoothing=0.0,
    decoding=DecodingConfig(max_new_tokens=8),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return write_corpus(tmp_path_factory.mktemp("prep"), {"train": stdlib_packages(["string"])})


def _writer(
    corpus: PreparedCorpus,
    positions: PositionsConfig,
    pairs: list[Pair],
    segment_encodings: bool = False,
    config: PermutationWriterConfig = _CONFIG,
) -> PermutationWriter:
    if positions.kind == "absolute_learned":
        positions = replace_positions(positions, 128)
    base = toy_base(
        corpus.tokenizer, positions, segment_encodings=segment_encodings, segment_tokens=128, model_dim=16
    )
    writer = config.build(base, as_data(pairs), seed=0)
    module = writer.learner.module.double().eval()
    for parameter in module.parameters():  # no zeros or ones that could hide a missing term
        torch.nn.init.normal_(parameter, std=0.4)
    return writer


def replace_positions(positions: PositionsConfig, max_positions: int) -> PositionsConfig:
    return positions.model_copy(update={"max_positions": max_positions})


@pytest.mark.parametrize("positions", [*RELATIVE, *ABSOLUTE], ids=lambda positions: positions.kind)
@pytest.mark.parametrize("segment_encodings", [False, True])
def test_loss_is_the_exact_likelihood(
    corpus: PreparedCorpus, positions: PositionsConfig, segment_encodings: bool
) -> None:
    pairs = toy_pairs(4)
    # `score_chosen` takes every `<eod>` for one that stands before a text: with documents none is predicted here.
    limit = 5 if segment_encodings else 24
    config = _CONFIG.model_copy(update={"target_tokens": limit})
    writer = _writer(corpus, positions, pairs, segment_encodings, config)
    tokenizer, network = corpus.tokenizer, writer.learner.module.network
    nats, num_predicted = 0.0, 0
    for pair in pairs:
        source_T, target_T = tokenizer.encode(pair.source)[:40], tokenizer.encode(pair.references[0])[:limit]
        is_whole = len(tokenizer.encode(pair.references[0])) <= limit
        end = [tokenizer.eod_id] if is_whole else []
        text_T = np.concatenate([source_T, [tokenizer.special_id("<sep>")], target_T, end]).astype(np.int64)
        order_P = np.arange(len(source_T) + 1, len(text_T))
        scores = score_chosen(network, text_T, order_P, tokenizer.eod_id, segment_tokens=256)
        assert scores.sees_all
        nats, num_predicted = nats - scores.log_likelihood, num_predicted + len(order_P)
    loss = writer.learner.module(writer.learner.batch(range(4), draw=0))
    assert loss.item() == pytest.approx(nats / num_predicted, rel=1e-10)


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda positions: positions.kind)
def test_cached_scores_are_the_trained_ones(corpus: PreparedCorpus, positions: PositionsConfig) -> None:
    """Teacher-forced through the cache, prompts of several lengths side by side."""
    pairs = toy_pairs(3)
    writer = _writer(corpus, positions, pairs, segment_encodings=True)
    learner, layout = writer.learner, PrefixLayout(corpus.tokenizer, separated=True)
    batch = learner.batch(range(3), draw=0)
    trained_XV = learner.module.predictions(batch).detach()
    sources, _ = Sequences(corpus.tokenizer, _CONFIG).training(pairs)
    prompts = [layout.prompt(source) for source in sources]
    text = Continuation(Decoder(learner.module.network, 256), prompts, batch.is_wanted_BP.shape[1])
    wanted_BP = torch.zeros(batch.is_wanted_BP.shape, dtype=torch.int64)
    wanted_BP[batch.is_wanted_BP] = batch.wanted_X
    steps = [text.first(), *(text.following(token_B) for token_B in wanted_BP.T[:-1])]
    cached_XV = torch.stack(steps, dim=1)[batch.is_wanted_BP]
    torch.testing.assert_close(cached_XV, trained_XV, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda positions: positions.kind)
def test_a_hole_is_trained_as_it_is_filled(corpus: PreparedCorpus, positions: PositionsConfig) -> None:
    pairs = hole_pairs(3)
    writer = _writer(corpus, positions, pairs, segment_encodings=True)
    network, layout = writer.learner.module.network, PrefixLayout(corpus.tokenizer, separated=True)
    sources, targets = Sequences(corpus.tokenizer, _CONFIG).training(pairs)
    examples = [layout.lay_out(*both, gap=5) for both in zip(sources, targets, strict=True)]
    batch = side_by_side(examples, with_documents=True, device=torch.device("cpu"))
    trained_XV = writer.learner.module.predictions(batch).detach()
    cached = []
    for source, target, example in zip(sources, targets, examples, strict=True):
        sides = Sides(layout.prompt(source), layout.suffix(source))
        hole = Holes(Decoder(network, 256), [Hole(sides, [len(target.tokens_T) + 5])])
        cached.append(hole.first())
        cached += [hole.following(torch.tensor([token])) for token in example.wanted_P[:-1].tolist()]
        assert example.wanted_P[-1] == corpus.tokenizer.special_id("<end_hole>")
    torch.testing.assert_close(torch.cat(cached), trained_XV, rtol=1e-9, atol=1e-9)


def test_a_side_that_was_cut_does_not_end_the_document(corpus: PreparedCorpus) -> None:
    layout = PrefixLayout(corpus.tokenizer, separated=True)
    source = Sequences(corpus.tokenizer, _CONFIG).written([("a = ", " # b\n")])[0]
    assert layout.suffix(source)[-1] == corpus.tokenizer.eod_id
    assert layout.suffix(replace(source, after_is_cut=True))[-1] != corpus.tokenizer.eod_id
