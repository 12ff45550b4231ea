"""Plain webdataset can read the tars."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

from data_prep.finished.prepared import open_prepared


# webdataset leaves closing the tars to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO.*:pytest.PytestUnraisableExceptionWarning")
def test_plain_webdataset_reads_the_tars(prepared: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = prepared
    corpus = open_prepared(folder)
    by_key = {entry.key: entry for entry in corpus.blocks("train")}
    urls = [str(path) for path in sorted((folder / "shards").glob("train-*.tar"))]
    dataset = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode()
    num_tokens = 0
    for sample in dataset:
        block = corpus.read_block(by_key.pop(sample["__key__"]))
        assert np.array_equal(sample["tokens.npy"], block.tokens)
        assert np.array_equal(sample["docs.npy"], block.doc_starts)
        assert [meta["path"] for meta in sample["meta.json"]["documents"]] == [m.path for m in block.docs]
        num_tokens += len(sample["tokens.npy"])
    del dataset
    gc.collect()
    assert not by_key
    assert num_tokens == summary["splits"]["train"]["num_tokens"]
