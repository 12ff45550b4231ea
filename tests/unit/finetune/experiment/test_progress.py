"""Every kind of system reports its progress: how many items are done so far."""

from pathlib import Path
from typing import Any

import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from finetune.modalities.labelling import Labelled, LabellingData
from finetune.modalities.ranking import Match, Pool, RankingData
from finetune.modalities.writing import Pair, WritingData
from finetune.systems.base import Base
from finetune.systems.labellers.classifier import ClassifierConfig
from finetune.systems.labellers.lexical import LexicalLabellerConfig
from finetune.systems.labellers.zero_shot_cloze import ZeroShotClozeConfig
from finetune.systems.rankers.bi_encoder import BiEncoderConfig, ZeroShotEncoderConfig
from finetune.systems.rankers.lexical import LexicalRankerConfig
from finetune.systems.writers.aligned_rnn import AlignedRnnConfig
from finetune.systems.writers.lexical import CopyConfig, NearestConfig, NgramConfig
from finetune.systems.writers.permutation_lm import PermutationWriterConfig
from pretrain.inference.folders import checked_model

_NUM_ITEMS = 70
_TEXTS = [f"x{number} = <mask>" for number in range(_NUM_ITEMS)]
_POOL = Pool(_TEXTS, _TEXTS, _TEXTS[:50], [(0,)] * _NUM_ITEMS)


@pytest.mark.parametrize(
    "config",
    [
        PermutationWriterConfig(source_tokens=16, target_tokens=4),
        AlignedRnnConfig(source_tokens=16, target_tokens=4, embedding_dim=8, state_dim=8),
        CopyConfig(),
        NearestConfig(),
        NgramConfig(),
        BiEncoderConfig(),
        ZeroShotEncoderConfig(),
        LexicalRankerConfig(),
        ClassifierConfig(),
        LexicalLabellerConfig(),
        ZeroShotClozeConfig(),
    ],
    ids=lambda config: config.kind,
)
def test_progress_rises_to_the_number_of_items(
    pretrain_folder: Path, corpus: PreparedCorpus, config: Any
) -> None:
    files, description = checked_model(pretrain_folder)
    base = Base(description, corpus.tokenizer, files, torch.device("cpu"))
    reported: list[int] = []
    pairs = [Pair(text, text, (text,)) for text in _TEXTS[:5]]
    matches = [Match(text, text, text) for text in _TEXTS[:5]]
    labelled = [Labelled(text, (text,), number % 2) for number, text in enumerate(_TEXTS[:6])]
    name = type(config).__module__
    if "writers" in name:
        config.build(base, WritingData(pairs, [], []), 0).write(  # type: ignore[union-attr]
            [(text, None) for text in _TEXTS], reported.append
        )
    elif "rankers" in name:
        system = config.build(base, RankingData(matches, _POOL, _POOL), 0)
        system.scores(_POOL.queries, _POOL.candidates, reported.append)  # type: ignore[union-attr]
    else:
        system = config.build(base, LabellingData(labelled, [], []), 0)
        system.probabilities([(text,) for text in _TEXTS], reported.append)  # type: ignore[union-attr]
    assert reported == sorted(reported)
    assert reported[-1] == _NUM_ITEMS
