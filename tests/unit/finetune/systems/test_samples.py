"""The same source asked for several times gets several samples, as pass@k needs them."""

from typing import Any

import pytest

from data_prep.finished.prepared import PreparedCorpus
from finetune.decoding.decode import occurrences
from finetune.systems.writers import permutation_lm, transformer
from tests.unit.finetune.systems.toys import as_data, toy_base, toy_pairs

_LIMITS = {"source_tokens": 32, "target_tokens": 12}
_STACK = {"num_layers": 1, "num_heads": 2, "ffn_dim": 16, "model_dim": 16}


def test_occurrences_count_equal_ones_before() -> None:
    assert occurrences([("a", None), ("b", None), ("a", None), ("a", "x"), ("a", None)]) == [0, 0, 1, 0, 2]


@pytest.mark.parametrize("kind", ["permutation_lm", "transformer"])
@pytest.mark.parametrize("batch", [1, 3])
def test_equal_sources_are_drawn_each_by_itself(corpus: PreparedCorpus, kind: str, batch: int) -> None:
    decoding = {"temperature": 1.0, "batch": batch}
    writer: Any
    if kind == "permutation_lm":
        config = permutation_lm.PermutationWriterConfig.model_validate(
            {"start": "scratch", "decoding": decoding, **_LIMITS}
        )
        writer = config.build(toy_base(corpus.tokenizer), as_data(toy_pairs(2)), seed=0)
    else:
        other = transformer.TransformerWriterConfig.model_validate(
            {"encoder": _STACK, "decoding": decoding, **_LIMITS}
        )
        writer = other.build(toy_base(corpus.tokenizer), as_data(toy_pairs(2)), seed=0)
    writer.learner.module.eval()

    def write(*texts: str) -> list[str]:
        found: list[str] = writer.write([(text, None) for text in texts], lambda _: None)
        return found

    samples = write("return a", "x = 1", "return a", "return a")
    assert len({samples[0], samples[2], samples[3]}) == 3
    assert write("x = 1", "return a", "return a", "return a") == [samples[1], samples[0], *samples[2:]]
    assert write("return a") == [samples[0]], "the first sample is the only one's"
