"""ROUGE-L, in percent: how much of a text is in the reference in the same order."""

from collections.abc import Sequence

import numpy as np
from rapidfuzz.distance import LCSseq

from finetune.metrics.bleu import summary_tokens
from finetune.metrics.measured import Measured, mean_of
from finetune.metrics.texts import check_texts


def rouge_l(references: Sequence[Sequence[str]], written: Sequence[str], beta: float = 1.0) -> Measured:
    """Return the mean F measure of the longest common subsequence of tokens (Lin 2004, section 3.1).

    F = (1 + beta^2) P R / (R + beta^2 P), with P and R the subsequence's share of the text and of the reference; the
    best reference counts. beta is 1 in most libraries, and 1.2 in the scripts that Ahmad et al. 2020 used. Tokens are
    those of `summary_bleu`.
    """
    check_texts(references, written)
    values = [
        100 * max(_f_measure(summary_tokens(text), summary_tokens(one), beta) for text in texts)
        for texts, one in zip(references, written, strict=True)
    ]
    return mean_of("rouge_l", np.array(values))


def _f_measure(reference: list[str], written: list[str], beta: float) -> float:
    common = LCSseq.similarity(reference, written)
    if common == 0:
        return 0.0
    precision, recall = common / len(written), common / len(reference)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
