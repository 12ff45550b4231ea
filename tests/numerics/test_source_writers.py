"""Writers with a decoder of their own: cached decoding is teacher forcing, nothing sees the future or padding, and
one step of each decoder is what the papers' equations say, element by element.

Shapes: B lanes, S source, T target, X predictions, D model, R state, V vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from data_prep.finished.prepared import PreparedCorpus
from finetune.layers.aligned_decoder import AlignedDecoder
from finetune.layers.masked_decoder import Decoder, DecoderBlock
from finetune.layers.transformer import StackConfig, Vocabulary, WideStackConfig
from finetune.systems.writers.aligned_rnn import AlignedRnnConfig
from finetune.systems.writers.encoder_decoder import EncoderDecoderConfig
from finetune.systems.writers.from_source import SourceBatch, SourceNetwork, SourceWriter
from finetune.systems.writers.transformer import TransformerWriterConfig
from pretrain.inference.beam import beam_search
from pretrain.inference.generation import IncrementalDecoder
from pretrain.inference.token_rules import TokenRules
from tests.example_corpus import stdlib_packages, write_corpus
from tests.unit.finetune.systems.toys import as_data, toy_base, toy_pairs

_LIMITS = {"source_tokens": 40, "target_tokens": 24, "label_smoothing": 0.0}
_STACK = {"num_layers": 2, "num_heads": 2, "ffn_dim": 12, "dropout": 0.0}
_RNN = {"embedding_dim": 8, "state_dim": 6, "alignment_dim": 5, "readout_dim": 8, "dropout": 0.0}

_SYSTEMS: dict[str, Any] = {
    "transformer pre": TransformerWriterConfig(encoder=WideStackConfig(model_dim=8, **_STACK), **_LIMITS),
    "transformer post": TransformerWriterConfig(
        encoder=WideStackConfig(model_dim=8, norm="post", **_STACK), tie_embeddings=False, **_LIMITS
    ),
    "gru": AlignedRnnConfig(**_RNN, **_LIMITS),
    "lstm": AlignedRnnConfig(cell="lstm", encoder_layers=2, tie_embeddings=False, **_RNN, **_LIMITS),
    "encoder": EncoderDecoderConfig(start="scratch", decoder=StackConfig(**_STACK), **_LIMITS),
}
every_system = pytest.mark.parametrize("name", _SYSTEMS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return write_corpus(tmp_path_factory.mktemp("prep"), {"train": stdlib_packages(["string"])})


@pytest.fixture(scope="module")
def writers(corpus: PreparedCorpus) -> dict[str, SourceWriter]:
    base = toy_base(corpus.tokenizer, segment_encodings=True, model_dim=16)
    found = {}
    for name, config in _SYSTEMS.items():
        writer = config.build(base, as_data(toy_pairs(12)), seed=0)
        for parameter in writer.network.double().eval().parameters():  # nothing hides behind a zero
            torch.nn.init.normal_(parameter, std=0.4)
        found[name] = writer
    return found


def _wanted(batch: SourceBatch) -> Tensor:
    wanted_BT = torch.zeros_like(batch.input_BT)
    wanted_BT[batch.is_wanted_BT] = batch.wanted_X
    return wanted_BT


@every_system
@torch.no_grad()
def test_cached_scores_are_the_trained_ones(writers: dict[str, SourceWriter], name: str) -> None:
    """Lanes of several lengths side by side, each in three lanes that are reordered on the way."""
    writer, network = writers[name], writers[name].network
    batch = writer.learner.batch([0, 5, 11], draw=0)
    trained_XV = network.predictions(batch)
    encoded = network.encode(batch.source_BS, batch.is_source_BS).repeated(3)
    text = network.written(encoded, int(batch.input_BT[0, 0]), batch.input_BT.shape[1])
    steps = [text.first()]
    for token_B in _wanted(batch).T[:-1]:
        # The middle lane of each three goes astray and takes over from its neighbour.
        astray_B = torch.stack([token_B, (token_B + 1) % 50, token_B], dim=1).flatten()
        steps.append(text.following(astray_B))
        text.reorder(torch.tensor([0, 2, 2, 3, 5, 5, 6, 8, 8]))
        steps[-1] = steps[-1][[0, 2, 2, 3, 5, 5, 6, 8, 8]]
    cached_XV = torch.stack([step[1::3] for step in steps], dim=1)[batch.is_wanted_BT]
    torch.testing.assert_close(cached_XV, trained_XV, rtol=1e-9, atol=1e-9)


@every_system
@torch.no_grad()
def test_lanes_that_continue_alone_do_not_change(writers: dict[str, SourceWriter], name: str) -> None:
    network, batch = writers[name].network, writers[name].learner.batch([0, 5, 11, 3], draw=0)

    def texts() -> IncrementalDecoder:
        encoded = network.encode(batch.source_BS, batch.is_source_BS)
        return network.written(encoded, int(batch.input_BT[0, 0]), 6)

    together, alone = texts(), texts()
    kept = torch.tensor([1, 3])
    tokens_BT = torch.arange(4 * 5).view(4, 5) + 7
    for text in (together, alone):
        text.first()
        text.following(tokens_BT[:, 0])
    alone.retain(kept)
    for token_B in tokens_BT.T[1:]:
        torch.testing.assert_close(
            alone.following(token_B[kept]), together.following(token_B)[kept], rtol=1e-9, atol=1e-9
        )


@every_system
@settings(max_examples=15, deadline=None)
@given(st.data())
@torch.no_grad()
def test_no_prediction_sees_the_future(
    writers: dict[str, SourceWriter], name: str, data: st.DataObject
) -> None:
    network = writers[name].network
    tokens = st.integers(0, 300)
    source_1S = torch.tensor([data.draw(st.lists(tokens, min_size=1, max_size=9))])
    input_1T = torch.tensor([data.draw(st.lists(tokens, min_size=2, max_size=9))])
    place = data.draw(st.integers(1, input_1T.shape[1] - 1))
    other_1T = input_1T.clone()
    other_1T[0, place] = (input_1T[0, place] + data.draw(st.integers(1, 200))) % 301
    encoded = network.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool))
    one, other = (network.decode(encoded, row) for row in (input_1T, other_1T))
    torch.testing.assert_close(one[:, :place], other[:, :place], rtol=1e-12, atol=1e-12)
    assert (one[:, place] - other[:, place]).abs().max() > 1e-9, "but the present matters"


@every_system
@torch.no_grad()
def test_padding_changes_nothing(writers: dict[str, SourceWriter], name: str) -> None:
    learner, network = writers[name].learner, writers[name].network
    numbers = [0, 5, 11, 3]
    together = network.predictions(learner.batch(numbers, draw=0))
    alone = torch.cat([network.predictions(learner.batch([number], draw=0)) for number in numbers])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)
    batch = learner.batch(numbers, draw=0)
    filled = replace(batch, source_BS=batch.source_BS.masked_fill(~batch.is_source_BS, 7))
    torch.testing.assert_close(network.predictions(filled), together, rtol=0, atol=0)


@every_system
@torch.no_grad()
def test_a_beam_rates_texts_by_their_exact_likelihood(writers: dict[str, SourceWriter], name: str) -> None:
    """What a beam of 4 finds and its scores, against scores of the same texts by teacher forcing."""
    network = writers[name].network
    source_BS = torch.tensor([[90, 91, 92], [93, 94, 95]])
    encoded = network.encode(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
    text = network.written(encoded.repeated(4), 1, 5)
    found = beam_search(text, [5, 5], 4, TokenRules(end=1))
    for lane, row in enumerate(found):
        assert len(row) == 4
        for one in row:
            chosen = [*one.tokens, *([1] if one.ended else [])]
            alone = network.encode(source_BS[lane : lane + 1], torch.ones(1, 3, dtype=torch.bool))
            rows_TD = network.decode(alone, torch.tensor([[1, *chosen[:-1]]]))[0]
            log_TV = network.logits(rows_TD).log_softmax(dim=-1)
            expected = log_TV[torch.arange(len(chosen)), torch.tensor(chosen)].sum().item()
            assert one.log_likelihood == pytest.approx(expected, rel=1e-9)


def _randomised(module: torch.nn.Module) -> torch.nn.Module:
    for parameter in module.double().eval().parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


@torch.no_grad()
def test_a_step_of_the_aligned_decoder_by_loops() -> None:
    """Bahdanau et al. 2015: section 3.1, A.1.1, A.1.2, A.2.2, one number at a time."""
    torch.manual_seed(0)
    embedding, state, align, readout, length = 3, 2, 4, 3, 5
    decoder = AlignedDecoder(embedding, state, align, readout, 0.0)
    _randomised(decoder)
    annotation_1SC = torch.randn(1, length, 2 * state, dtype=torch.float64)
    rows_1TD = torch.randn(1, 3, embedding, dtype=torch.float64)
    source = decoder.annotations(annotation_1SC, torch.tensor([[True] * (length - 1) + [False]]))
    found_TL = decoder(rows_1TD, source)[0]

    def times(linear: torch.nn.Linear, vector: list[float]) -> list[float]:
        bias = [0.0] * len(linear.weight) if linear.bias is None else linear.bias.tolist()
        return [
            b + sum(w * x for w, x in zip(row, vector, strict=True))
            for row, b in zip(linear.weight.tolist(), bias, strict=True)
        ]

    def plus(*vectors: list[float]) -> list[float]:
        return [sum(parts) for parts in zip(*vectors, strict=True)]

    def gate(values: list[float]) -> list[float]:
        return [1 / (1 + math.exp(-value)) for value in values]

    h = annotation_1SC[0, : length - 1].tolist()  # the last one is padding
    s = [math.tanh(value) for value in times(decoder.start, h[0][state:])]
    for number, y in enumerate(rows_1TD[0].tolist()):
        energies = []
        for h_j in h:
            inner = plus(times(decoder.align_state, s), times(decoder.align_annotation, h_j))
            energies.append(times(decoder.align_score, [math.tanh(value) for value in inner])[0])
        total = sum(math.exp(energy) for energy in energies)
        alpha = [math.exp(energy) / total for energy in energies]
        c = [sum(alpha[j] * h[j][place] for j in range(len(h))) for place in range(2 * state)]
        given_y, given_c = times(decoder.from_token, y), times(decoder.from_context, c)
        from_state = times(decoder.from_state, s)
        z = gate(plus(given_y[state : 2 * state], given_c[state : 2 * state], from_state[:state]))
        r = gate(plus(given_y[2 * state :], given_c[2 * state :], from_state[state:]))
        reset = times(decoder.from_reset_state, [r[place] * s[place] for place in range(state)])
        proposal = [math.tanh(value) for value in plus(given_y[:state], given_c[:state], reset)]
        s = [(1 - z[place]) * s[place] + z[place] * proposal[place] for place in range(state)]
        t = plus(
            times(decoder.readout_state, s),
            times(decoder.readout_token, y),
            times(decoder.readout_context, c),
        )
        expected = [max(t[2 * place], t[2 * place + 1]) for place in range(readout)]
        np.testing.assert_allclose(found_TL[number].tolist(), expected, rtol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_the_transformer_decoder_by_loops(norm: str) -> None:
    """Vaswani et al. 2017, section 3: one row, head and key at a time."""
    torch.manual_seed(0)
    config = StackConfig(num_layers=2, num_heads=2, ffn_dim=7, dropout=0.0, norm=norm)  # type: ignore[arg-type]
    decoder, vocabulary = Decoder(4, config), Vocabulary(11, 4, 0.0, tied=True)
    _randomised(decoder)
    _randomised(vocabulary)
    source_1SD = torch.randn(1, 3, 4, dtype=torch.float64)
    tokens_1T = torch.tensor([[3, 5, 10]])
    memory = decoder.memory(source_1SD, torch.tensor([[True, True, False]]))
    found_TV = vocabulary.logits(decoder(vocabulary.rows(tokens_1T), memory))[0]

    def attended(attention: torch.nn.Module, row: Tensor, others: list[Tensor]) -> Tensor:
        query = attention.query(row)  # type: ignore[operator]
        pairs = [attention.key_value(other) for other in others]  # type: ignore[operator]
        gathered = []
        for head in (slice(0, 2), slice(2, 4)):
            value_head = slice(4 + head.start, 4 + head.stop)
            weight = [math.exp(float(query[head] @ pair[head]) / math.sqrt(2)) for pair in pairs]
            gathered.append(
                sum(w * pair[value_head] for w, pair in zip(weight, pairs, strict=True)) / sum(weight)
            )
        return attention.output(torch.cat(gathered))  # type: ignore[operator, no-any-return]

    def normed(norm_layer: torch.nn.Module, row: Tensor) -> Tensor:
        centred = row - row.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt() * norm_layer.weight + norm_layer.bias

    rows = []
    for place, token in enumerate(tokens_1T[0].tolist()):
        angle = [place / 10_000 ** (2 * pair / 4) for pair in range(2)]
        position = torch.tensor([*map(math.sin, angle), *map(math.cos, angle)], dtype=torch.float64)
        rows.append(vocabulary.embedding.weight[token] * 2.0 + position)
    pre = norm == "pre"
    for block in decoder.blocks:
        assert isinstance(block, DecoderBlock)

        def around(part: torch.nn.Module, rows: list[Tensor], work: Callable[..., Tensor]) -> list[Tensor]:
            entering = [normed(part.norm, row) for row in rows] if pre else rows  # type: ignore[arg-type]
            summed = [row + work(place, entering) for place, row in enumerate(rows)]
            return summed if pre else [normed(part.norm, row) for row in summed]  # type: ignore[arg-type]

        rows = around(
            block.around_attention,
            rows,
            lambda place, seen, block=block: attended(block.attention, seen[place], seen[: place + 1]),
        )
        rows = around(
            block.around_source_attention,
            rows,
            lambda place, seen, block=block: attended(
                block.source_attention, seen[place], list(source_1SD[0, :2])
            ),
        )
        rows = around(
            block.around_feed_forward,
            rows,
            lambda place, seen, block=block: block.feed_forward.down(
                block.feed_forward.up(seen[place]).clamp(min=0.0)
            ),
        )
    if pre:
        rows = [normed(decoder.final_norm, row) for row in rows]
    expected_TV = torch.stack([vocabulary.embedding.weight @ row + vocabulary.output_bias_V for row in rows])
    torch.testing.assert_close(found_TV, expected_TV, rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_the_source_is_read_in_both_directions(writers: dict[str, SourceWriter]) -> None:
    """A change anywhere in the source reaches the first prediction of every system."""
    for name, writer in writers.items():
        network: SourceNetwork = writer.network
        source_1S = torch.tensor([[80, 81, 82, 83]])
        there = torch.ones_like(source_1S, dtype=torch.bool)
        start = torch.tensor([[1]])
        plain = network.decode(network.encode(source_1S, there), start)
        for place in range(4):
            other_1S = source_1S.clone()
            other_1S[0, place] = 99
            changed = network.decode(network.encode(other_1S, there), start)
            assert (plain - changed).abs().max() > 1e-9, (name, place)
