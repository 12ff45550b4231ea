"""What writers read of texts: cut at limits, counted, never more."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.finished.prepared import PreparedCorpus
from finetune.modalities.writing import Pair
from finetune.systems.writers.config import WriterConfig
from finetune.systems.writers.from_source import filled_up
from finetune.systems.writers.permutation_lm import PermutationWriterConfig
from finetune.systems.writers.prefix_layout import PrefixLayout
from finetune.systems.writers.sequences import Sequences
from tests.unit.finetune.systems.toys import as_data, toy_base, written

_TEXTS = st.text("ab =\n\u00e9\U0001f600", max_size=12)


@settings(max_examples=100, deadline=None)
@given(
    before=_TEXTS,
    after=st.none() | _TEXTS,
    target=_TEXTS,
    limits=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    keep=st.sampled_from(["start", "end"]),
)
def test_nothing_is_longer_than_its_limit_and_every_cut_is_reported(
    corpus: PreparedCorpus, before: str, after: str | None, target: str, limits: tuple[int, int], keep: str
) -> None:
    config = WriterConfig.model_validate(
        {"source_tokens": limits[0], "target_tokens": limits[1], "keep": keep}
    )
    sequences, encode = Sequences(corpus.tokenizer, config), corpus.tokenizer.encode
    (source,), (wanted,) = sequences.training([Pair("0", before, (target,), after)])
    whole_before, whole_after = encode(before).tolist(), encode(after or "").tolist()
    num_tokens = len(whole_before) + len(whole_after)
    assert source.num_tokens == min(limits[0], num_tokens), "no more is cut than must be"
    assert source.is_cut == (num_tokens > limits[0])
    kept = source.before_T.tolist()
    if after is None:
        assert source.after_T is None
        assert kept == (
            whole_before[: len(kept)] if keep == "start" else whole_before[len(whole_before) - len(kept) :]
        )
    else:
        assert source.after_T is not None
        assert kept == whole_before[len(whole_before) - len(kept) :]
        assert source.after_T.tolist() == whole_after[: len(source.after_T)]
        assert source.after_is_cut == (len(source.after_T) < len(whole_after))
    assert wanted.tokens_T.tolist() == encode(target).tolist()[: limits[1]]
    assert wanted.is_cut == (len(encode(target)) > limits[1])
    assert sequences.cut == {"train_sources": int(source.is_cut), "train_targets": int(wanted.is_cut)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(_TEXTS, st.none() | _TEXTS, _TEXTS), min_size=1, max_size=4), st.integers(0, 9))
def test_any_texts_make_a_batch(
    corpus: PreparedCorpus, texts: list[tuple[str, str | None, str]], draw: int
) -> None:
    pairs = [
        Pair(str(number), source, (target,), suffix) for number, (source, suffix, target) in enumerate(texts)
    ]
    config = PermutationWriterConfig(start="scratch", source_tokens=6, target_tokens=5)
    learner = config.build(toy_base(corpus.tokenizer, model_dim=16), as_data(pairs), seed=0).learner
    batch = learner.batch(range(len(pairs)), draw)
    loss = learner.module(batch)
    assert torch.isfinite(loss)
    # Lengths are rounded up, so that few shapes occur.
    assert batch.content.position_BX.max() < batch.content.extent < config.extent_tokens + 32
    assert batch.tokens_BL.shape[1] < max(learner.lengths_tokens) + 32


def test_a_system_to_be_loaded_needs_no_training_data(corpus: PreparedCorpus) -> None:
    config = PermutationWriterConfig(start="scratch", target_tokens=3)
    writer = config.build(toy_base(corpus.tokenizer, model_dim=16), as_data([]), seed=0)
    writer.learner.module.eval()
    assert written(writer, []) == []
    assert len(writer.write([("", None), ("a", None), ("", "")], lambda done: None)) == 3


def test_a_target_that_goes_on_with_its_source_has_no_separator(corpus: PreparedCorpus) -> None:
    tokenizer = corpus.tokenizer
    (source,) = Sequences(tokenizer, WriterConfig()).written([("x = ", None)])
    apart, together = (PrefixLayout(tokenizer, separated=value).prompt(source) for value in (True, False))
    assert together.tolist() == [tokenizer.eod_id, *tokenizer.encode("x = ").tolist()]
    assert apart.tolist() == [*together.tolist(), tokenizer.special_id("<sep>")]


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=4))
def test_rows_are_filled_up_at_their_ends(rows: list[list[int]]) -> None:
    filled_BX, is_there_BX = filled_up([np.array(row, dtype=np.int64) for row in rows], torch.device("cpu"))
    assert filled_BX.shape == (len(rows), max(map(len, rows)))
    for row, filled_X, is_there_X in zip(rows, filled_BX, is_there_BX, strict=True):
        assert filled_X[is_there_X].tolist() == row
        assert is_there_X.tolist() == [place < len(row) for place in range(filled_BX.shape[1])]
