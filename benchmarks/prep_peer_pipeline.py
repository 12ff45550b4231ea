"""Time datatrove from JSONL to tokens, with near-duplicates removed: the peer of the whole of prep.

    .venv-bench/bin/python -m benchmarks.prep_peer_pipeline CORPUS --max-mb 30 --tokenizer tokenizer.json --folder F

Its local executor on one worker: reader and MinHash signatures, buckets, clusters, then reader, filter and
`DocumentTokenizer`; its defaults throughout (5-grams, 14 buckets of 8 hashes). Writing the JSONL is not timed. It has
none of prep's filters for code, secrets, exact duplicates, decontamination, verification, order or ledger.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.prep_timing import Sample, Timing, load_sample, use_one_core


def write_jsonl(sample: Sample, folder: Path) -> None:
    """Write the sample as JSONL, the form that datatrove reads."""
    folder.mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as sink:
        for path, text in zip(sample.paths, sample.texts, strict=True):
            sink.write(json.dumps({"text": text.decode(), "id": str(path)}, ensure_ascii=False) + "\n")


def stages(folder: Path, tokenizer: Path) -> list[list[Any]]:
    """Return the four pipelines, to be run one after the other."""
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    config = MinhashConfig()
    signatures, buckets, removed = (str(folder / name) for name in ("signatures", "buckets", "removed"))
    reader = JsonlReader(str(folder / "jsonl"))
    tokens = DocumentTokenizer(str(folder / "tokens"), str(tokenizer), shuffle_documents=False)
    return [
        [reader, MinhashDedupSignature(signatures, config)],
        [MinhashDedupBuckets(signatures, buckets, config=config)],
        [MinhashDedupCluster(buckets, removed, config=config)],
        [reader, MinhashDedupFilter(removed), tokens],
    ]


def run(folder: Path, tokenizer: Path) -> list[float]:
    """Run all stages and return the wall seconds of each."""
    from datatrove.executor import LocalPipelineExecutor

    times_s = []
    for number, pipeline in enumerate(stages(folder, tokenizer)):
        tasks = 14 if number == 1 else 1  # a bucket is a task
        start_s = time.monotonic()
        executor = LocalPipelineExecutor(
            pipeline, tasks, workers=1, logging_dir=str(folder / f"logs{number}")
        )
        executor.run()
        times_s.append(time.monotonic() - start_s)
    return times_s


def cpu_s() -> float:
    """Return the CPU seconds of this process and of all children it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    """Time the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--max-mb", type=float, default=30)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    use_one_core()
    sample = load_sample(arguments.corpus, int(arguments.max_mb * 1e6))
    write_jsonl(sample, arguments.folder / "jsonl")
    os.environ["DATATROVE_COLORIZE_LOGS"] = "0"
    from loguru import logger

    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    before_s = cpu_s()
    times_s = run(arguments.folder, arguments.tokenizer)
    used_s = cpu_s() - before_s
    num_tokens = sum(path.stat().st_size for path in (arguments.folder / "tokens").glob("*.ds")) // 2
    walls = " ".join(f"{seconds:.1f}" for seconds in times_s)
    Timing(
        len(sample.texts),
        sample.num_bytes,
        used_s,
        used_s,
        1,
        f"{num_tokens} tokens, wall s by stage {walls}",
    ).print()


if __name__ == "__main__":
    main()
