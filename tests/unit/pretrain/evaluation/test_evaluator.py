"""Figures are those of a slow reference, the same however the lanes are divided; training does not notice."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from pretrain.data.batch import left_to_right_batch
from pretrain.data.lanes import LaneReader
from pretrain.evaluation import evaluator as evaluator_module
from pretrain.evaluation.conditions import HEADLINE, Condition
from pretrain.evaluation.evaluator import Evaluator
from pretrain.evaluation.result import Evaluation
from pretrain.evaluation.text import ValidationText
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from tests.unit.pretrain.evaluation.conftest import LANES, SEGMENT, evaluator_of

TOLERANCE = 1e-9
CPU = torch.device("cpu")


def whole_text(corpus: PreparedCorpus) -> ValidationText:
    return ValidationText.of_split(corpus, "validation", LANES, SEGMENT, 1 << 20)


@torch.no_grad()
def reference_nats(model: TwoStreamTransformer, text: ValidationText, with_memory: bool) -> list[np.ndarray]:
    """Nats of every token of every lane from those before it, one lane at a time."""
    found = []
    for lane in range(text.lanes):
        memory, nats = model.empty_memory(1), []
        for step in range(text.num_segments):
            batch = left_to_right_batch(
                text.reader, step, range(lane, lane + 1), with_documents=False, device=CPU
            )
            output = model(batch.tokens_BL, batch.content, batch.targets, memory)
            memory = output.memory if with_memory else memory
            nats.append(functional.cross_entropy(output.logits_BPV[0], batch.wanted_BP[0], reduction="none"))
        found.append(torch.cat(nats).numpy())
    return found


def reference_documents(corpus: PreparedCorpus, text: ValidationText) -> tuple[list[np.ndarray], list[str]]:
    """The document of every token of every lane (one block: a lane is a slice of it), and their languages."""
    block = corpus.read_block(corpus.blocks("validation")[0])
    document_of = np.repeat(np.arange(len(block.docs)), np.diff([*block.doc_starts, len(block.tokens)]))
    slice_tokens = text.reader.steps_per_epoch * SEGMENT
    lanes = [
        document_of[lane * slice_tokens : lane * slice_tokens + text.num_segments * SEGMENT]
        for lane in range(LANES)
    ]
    return lanes, [document.language for document in block.docs]


def row(
    evaluation: Evaluation, order: str, with_memory: bool, language: str | None = None
) -> dict[str, float]:
    [found] = [
        row
        for row in evaluation.to_json()["table"]
        if (row["order"], row["with_memory"], row["language"]) == (order, with_memory, language)
    ]
    return found


@pytest.mark.parametrize("with_memory", [True, False])
def test_left_to_right_is_the_slow_references_in_every_language(
    corpus: PreparedCorpus, model: TwoStreamTransformer, with_memory: bool
) -> None:
    evaluation = evaluator_of(corpus).final(model)
    text = whole_text(corpus)
    nats = reference_nats(model.eval(), text, with_memory)
    documents, languages = reference_documents(corpus, text)
    tokens = [text.stream(lane) for lane in range(LANES)]
    for language in (None, "Python", "Markdown"):
        costs = []
        for lane in range(LANES):
            for document in np.unique(documents[lane][1:]):
                is_its = documents[lane] == document
                is_its[0] = False
                if language in (None, languages[document]):
                    costs.append((nats[lane][is_its].sum(), text.token_bytes_V[tokens[lane][is_its]].sum()))
        total_nats, total_bytes = np.sum(costs, axis=0)
        ratio = total_nats / total_bytes
        residuals = [(a - ratio * b) ** 2 for a, b in costs]
        error = math.sqrt(sum(residuals) * len(costs) / (len(costs) - 1)) / total_bytes / math.log(2)
        found = row(evaluation, "left_to_right", with_memory, language)
        assert found["bits_per_byte"] == pytest.approx(ratio / math.log(2), rel=TOLERANCE)
        assert found["standard_error"] == pytest.approx(error, rel=1e-6)
        assert (found["num_bytes"], found["num_documents"]) == (total_bytes, len(costs))


def test_the_headline_is_left_to_right_with_memory_on_all_its_tokens(
    corpus: PreparedCorpus, model: TwoStreamTransformer
) -> None:
    evaluation = evaluator_of(corpus, during_tokens=1 << 20).during(model)
    text = whole_text(corpus)
    nats = sum(lane[1:].sum() for lane in reference_nats(model.eval(), text, with_memory=True))
    num_bytes = sum(int(text.token_bytes_V[text.stream(lane)[1:]].sum()) for lane in range(LANES))
    expected = nats / math.log(2) / num_bytes
    assert evaluation.metrics()["validation_bits_per_byte"] == pytest.approx(expected, rel=TOLERANCE)
    assert evaluation.headline.num_bytes == num_bytes
    assert row(evaluation, "any_order", True)["num_bytes"] < num_bytes / 2, "fewer tokens during training"


def test_every_condition_is_scored_on_the_same_part_with_and_without_memory(
    corpus: PreparedCorpus, model: TwoStreamTransformer
) -> None:
    evaluation = evaluator_of(corpus).final(model)
    for order in ("left_to_right", "any_order", "infill"):
        with_memory, without = row(evaluation, order, True), row(evaluation, order, False)
        assert with_memory["num_bytes"] == without["num_bytes"]
        assert with_memory["num_documents"] == without["num_documents"]
        assert with_memory["bits_per_byte"] != without["bits_per_byte"]


@pytest.mark.parametrize("world_size", [2, 5])
def test_the_figures_do_not_depend_on_the_workers(
    corpus: PreparedCorpus, model: TwoStreamTransformer, monkeypatch: pytest.MonkeyPatch, world_size: int
) -> None:
    """Workers one after the other in this process: what each found is added up here."""
    alone = evaluator_of(corpus, per_pass=LANES).final(model)
    parts: list[np.ndarray] = []
    for rank in range(world_size):
        monkeypatch.setattr(evaluator_module, "rank_and_world_size", lambda rank=rank: (rank, world_size))
        monkeypatch.setattr(evaluator_module, "union_over_workers", lambda _languages: ("Markdown", "Python"))

        def keep(sums: np.ndarray, _device: torch.device) -> np.ndarray:
            parts.append(sums)
            return np.sum(parts, axis=0)

        monkeypatch.setattr(evaluator_module, "sum_over_workers", keep)
        evaluator = evaluator_of(corpus, per_pass=1)
        try:
            together = evaluator.final(model)
        except UserError:
            assert rank + 1 < world_size, "the first workers may have nothing to score"
    assert len(parts) == world_size
    assert together.metrics() == pytest.approx(alone.metrics(), rel=1e-7)
    assert together.headline.num_bytes == alone.headline.num_bytes


def test_every_worker_makes_the_same_number_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward pass is collective under ZeRO 3; every lane counts on one worker."""
    for num_lanes, world_size, per_pass in [(3, 5, 1), (7, 2, 2), (16, 4, 4), (1, 3, 8)]:
        numbers, counted = set(), []
        for rank in range(world_size):
            monkeypatch.setattr(
                evaluator_module, "rank_and_world_size", lambda rank=rank, of=world_size: (rank, of)
            )
            passes = list(evaluator_module.passes(num_lanes, per_pass))
            numbers.add(len(passes))
            counted += [lane for lanes, counts in passes if counts for lane in lanes]
        assert len(numbers) == 1
        assert counted == list(range(num_lanes))


def test_training_does_not_notice_an_evaluation(corpus: PreparedCorpus, model: TwoStreamTransformer) -> None:
    evaluator, ends = evaluator_of(corpus), []
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for evaluates in (False, True):
        model.load_state_dict(start)
        ends.append(_trained(model, corpus, evaluator if evaluates else None))
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


def _trained(
    model: TwoStreamTransformer, corpus: PreparedCorpus, evaluator: Evaluator | None
) -> dict[str, torch.Tensor]:
    """Weights, gradients and memory after three steps with dropout, drawn from one stream of random numbers."""
    torch.manual_seed(5)
    model.train()
    memory, text = model.empty_memory(LANES), whole_text(corpus)
    for step in range(3):
        batch = left_to_right_batch(text.reader, step, range(LANES), with_documents=False, device=CPU)
        output = model(batch.tokens_BL, batch.content, batch.targets, memory)
        memory = output.memory
        functional.cross_entropy(output.logits_BPV.flatten(0, 1), batch.wanted_BP.flatten()).backward()
        if evaluator:
            evaluator.during(model)
        assert model.training
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        if evaluator:
            evaluator.during(model)
    gradients = {f"gradient of {name}": value.grad.clone() for name, value in model.named_parameters()}
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model.zero_grad()
    return weights | gradients | {f"memory {n}": layer for n, layer in enumerate(memory.layers_BMD)}


def test_the_model_goes_back_to_training_after_an_error(
    corpus: PreparedCorpus, model: TwoStreamTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.train()
    evaluator = evaluator_of(corpus)
    monkeypatch.setattr(model, "logits", lambda _rows: torch.ones(()))
    with pytest.raises(IndexError):
        evaluator.during(model)
    assert model.training
    assert torch.is_grad_enabled()


def test_two_evaluations_of_one_model_are_equal(corpus: PreparedCorpus, model: TwoStreamTransformer) -> None:
    assert evaluator_of(corpus).final(model) == evaluator_of(corpus).final(model)


def test_what_is_switched_off_is_not_scored(corpus: PreparedCorpus, model: TwoStreamTransformer) -> None:
    evaluation = evaluator_of(corpus, by_order=False).final(model)
    assert {row.condition for row in evaluation.rows} == {HEADLINE}
    assert evaluation.headline == evaluator_of(corpus).final(model).headline


def test_a_model_without_memory_has_no_second_set_of_figures(corpus: PreparedCorpus) -> None:
    shape = ModelConfig(
        num_layers=2, model_dim=16, num_heads=2, head_dim=8, ffn_dim=32, memory_tokens=0, dropout=0.0
    )
    model = TwoStreamTransformer(shape, corpus.tokenizer.vocab_size)
    found = {row.condition for row in evaluator_of(corpus).final(model).rows}
    assert found == {Condition(order, True) for order in ("left_to_right", "any_order", "infill")}  # type: ignore[arg-type]


def test_a_split_smaller_than_a_segment_is_refused_before_any_training(corpus: PreparedCorpus) -> None:
    with pytest.raises(UserError, match=r"split 'validation' has \d+ tokens, fewer than one segment"):
        Evaluator(
            evaluator_of(corpus)._config, corpus, LANES, segment_tokens=100_000, lanes_per_pass=1, device=CPU
        )


def test_after_every_pass_somebody_hears_that_the_evaluation_gets_on(
    corpus: PreparedCorpus, model: TwoStreamTransformer
) -> None:
    """The watchdog: all passes together may take longer than it waits."""
    heard: list[str] = []
    evaluator = evaluator_of(corpus, tick=lambda: heard.append("tick"))
    model.register_forward_hook(lambda *_: heard.append("pass"))
    evaluator.final(model)
    assert heard.count("pass") > 12
    assert ("pass", "pass") not in pairwise(heard)


def test_after_every_counted_lane_somebody_hears_that_the_counting_gets_on(
    corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    real = LaneReader.lane_tokens

    def lane_tokens(reader: LaneReader, lane: int, num_steps: int) -> NDArray[np.int64]:
        heard.append("lane")
        return real(reader, lane, num_steps)

    monkeypatch.setattr(LaneReader, "lane_tokens", lane_tokens)
    training = LaneReader(corpus, "train", LANES, SEGMENT, seed=0)
    evaluator_of(corpus).baselines(training, 3, lambda: heard.append("tick"))
    assert heard.count("lane") == 3 * LANES, "for unigrams, for bigrams, of the text"
    assert ("lane", "lane") not in pairwise(heard)


def test_a_bfloat16_model_is_scored_near_its_float64_twin(
    corpus: PreparedCorpus, model: TwoStreamTransformer
) -> None:
    exact = evaluator_of(corpus).final(model).metrics()
    rounded = evaluator_of(corpus).final(model.bfloat16()).metrics()
    assert rounded == pytest.approx(exact, rel=2e-2)
