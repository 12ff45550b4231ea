"""The work of a finetune stage as tasks that each make one file: two arms and a baseline.

Per task: `ARM/journal.jsonl`, `ARM/result.json` (written last), `pretrained/model/`, `baseline/result.json`.
"""

from pathlib import Path
from typing import Any

import torch

from cluster.journal import JOURNAL_NAME, Journal
from cluster.storage import write_json
from data_prep.prepared import PreparedCorpus, open_prepared
from finetune.adapt import Arm, initial_model
from finetune.config import CompletionConfig, SearchConfig
from finetune.tasks import completion, search
from finetune.train import compute_device
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription, save_model

MODEL = "model"


def completion_arm(
    config: CompletionConfig, seed: int, arm: Arm, prep_folder: Path, pretrain_folder: Path, output: Path
) -> None:
    """Train and judge one arm; `output` gets the figures of `completion_summary`."""
    corpus = open_prepared(prep_folder)
    documents = completion.scored_documents(corpus, config, seed)
    model = _start(arm, prep_folder, pretrain_folder, seed)
    journal = Journal(output.with_name(JOURNAL_NAME), fresh=True)
    completion.train_completion(model, corpus, config, seed, journal)
    journal.event("evaluating")
    result = completion.evaluate_completion(model, documents, config, seed)
    journal.step(config.training.steps, {"test_accuracy": result["accuracy"]})
    _finish(arm, model, corpus, pretrain_folder, result, journal, output)


def search_arm(
    config: SearchConfig, seed: int, arm: Arm, prep_folder: Path, pretrain_folder: Path, output: Path
) -> None:
    """Train and judge one arm; `output` gets the figures of `search_summary`."""
    corpus = open_prepared(prep_folder)
    data = search.search_data(corpus, config, seed)
    model = _start(arm, prep_folder, pretrain_folder, seed)
    journal = Journal(output.with_name(JOURNAL_NAME), fresh=True)
    search.train_search(model, corpus, data, config, seed, journal)
    journal.event("evaluating")
    result = search.evaluate_search(model, corpus, data, config, seed)
    journal.step(config.training.steps, {"test_mrr": result["mrr"]})
    _finish(arm, model, corpus, pretrain_folder, result, journal, output)


def completion_baseline(config: CompletionConfig, seed: int, prep_folder: Path, output: Path) -> None:
    """`output` gets the figures of the bigram over lexemes."""
    write_json(output, completion.bigram_baseline(open_prepared(prep_folder), config, seed))


def search_baseline(config: SearchConfig, seed: int, prep_folder: Path, output: Path) -> None:
    """`output` gets the figures of TF-IDF."""
    write_json(output, search.tfidf_baseline(open_prepared(prep_folder), config, seed))


def _start(arm: Arm, prep_folder: Path, pretrain_folder: Path, seed: int) -> TwoStreamTransformer:
    # The arms run side by side with one CPU each; more threads would only get in each other's way.
    torch.set_num_threads(1)
    model = initial_model(arm, pretrain_folder / MODEL, prep_folder / "tokenizer.json", seed)
    return model.to(compute_device())


def _finish(
    arm: Arm,
    model: TwoStreamTransformer,
    corpus: PreparedCorpus,
    pretrain_folder: Path,
    result: dict[str, Any],
    journal: Journal,
    output: Path,
) -> None:
    if arm == "pretrained":
        description = ModelDescription.read(pretrain_folder / MODEL / "config.json")
        save_model(
            model,
            output.with_name(MODEL),
            corpus.folder / "tokenizer.json",
            segment_tokens=description.segment_tokens,
        )
    journal.close()
    write_json(output, result)
