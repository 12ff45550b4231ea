"""A finished run made of invented numbers, for tests of what is shown."""

import math
from pathlib import Path
from typing import Any

from cluster.journal import Journal
from pipeline.folder.stage_record import StageRecord

RULES = {
    "file_size": 412,
    "line_length": 133,
    "alphanumeric_share": 9,
    "not_decodable": 3,
    "parses": 41,
    "duplicate": 780,
}


def prep_summary() -> dict[str, Any]:
    split_of = {3: "validation", 7: "test", 11: "test"}
    repositories = [
        {
            "name": f"package_{number}" if number else "python/<odd & name>",
            "split": split_of.get(number, "train"),
            "num_files": 300 - number,
            "num_bytes": int(9e6 / (1 + number) ** 0.8),
        }
        for number in range(48)
    ]
    split = {
        "num_docs": 100,
        "num_tokens": 1_000_000,
        "num_bytes": 3_400_000,
        "num_shards": 1,
        "num_blocks": 4,
    }
    return {
        "num_files_listed": 8412,
        "num_bytes_listed": 91_000_000,
        "num_files_kept": 8412 - sum(RULES.values()),
        "num_bytes_kept": 60_300_000,
        "dropped_by_rule": RULES,
        "bytes_dropped_by_rule": {rule: 10_000 * count for rule, count in RULES.items()},
        "num_repositories": len(repositories),
        "repositories": repositories,
        "splits": {
            "train": {**split, "num_docs": 6400, "num_tokens": 15_700_000, "num_bytes": 53_400_000},
            "validation": split,
            "test": split,
        },
        "sources": {},
        "languages": {"Python": {"num_files": 7034, "num_bytes": 60_300_000, "num_tokens": 17_700_000}},
        "languages_listed": {
            "Python": {"num_files": 8000, "num_bytes": 80_000_000},
            "JavaScript": {"num_files": 412, "num_bytes": 11_000_000},
        },
        "licences": {
            "MIT": {"num_files": 5000, "num_bytes": 40_300_000, "num_tokens": 11_700_000},
            "unknown": {"num_files": 2034, "num_bytes": 20_000_000, "num_tokens": 6_000_000},
        },
        "licences_listed": {
            "MIT": {"num_files": 6000, "num_bytes": 60_000_000},
            "GPL-3.0-only": {"num_files": 378, "num_bytes": 11_000_000},
            "unknown": {"num_files": 2034, "num_bytes": 20_000_000},
        },
        "document_bytes_histogram": {"512": 900, "1024": 2000, "4096": 3000, "16384": 1134},
        "cluster_sizes": {"2": 300, "3": 40, "17": 1},
        "flags": {"crlf": 12},
        "redactions": {"email": 99},
        "vocab_size": 8192,
        "bytes_per_token": 3.41,
    }


def validation_table() -> list[dict[str, Any]]:
    """Two languages; one of them has a single document, and nothing of it was in a hole."""

    def row(
        order: str, language: str | None, figure: float, error: float | None, num_bytes: int
    ) -> dict[str, Any]:
        condition = {"order": order, "with_memory": order != "infill", "language": language}
        estimate = {
            "bits_per_byte": figure,
            "standard_error": error,
            "num_bytes": num_bytes,
            "num_documents": 9,
        }
        return condition | estimate

    return [
        row("left_to_right", None, 2.113, 0.031, 880_000),
        row("left_to_right", "C++", 3.313, None, 80_000),
        row("left_to_right", "Python", 2.013, 0.029, 800_000),
        row("infill", None, 1.871, 0.045, 110_000),
        row("infill", "Python", 1.871, 0.045, 110_000),
    ]


def pretrain_summary() -> dict[str, Any]:
    return {
        "num_parameters": 5_300_000,
        "num_steps": 500,
        "tokens_seen": 500 * 4096,
        "final_loss": 3.7,
        "validation": {
            "model_bits_per_byte": 2.113,
            "unigram_bits_per_byte": 3.402,
            "bigram_bits_per_byte": 2.301,
            "num_bytes": 880_000,
            "model_standard_error": 0.031,
            "num_documents": 240,
            "by_condition": {
                "left_to_right": 2.113,
                "any_order": 2.544,
                "infill": 1.871,
                "left_to_right.without_memory": 2.206,
            },
            "table": validation_table(),
        },
        "beats_unigram_by": 0.379,
        "beats_bigram": True,
        "tokens_per_s_median": 7600.0,
        "world_size": 2,
        "zero_stage": 2,
        "backend": "gloo",
        "resumed_from": [200],
        "goodput": {
            "share": 0.9,
            "wall_s": 300.0,
            "num_attempts": 2,
            "unexplained_s": 0.1,
            "seconds": {"startup_s": 12.0, "compute_s": 270.0, "lost_s": 18.0},
        },
    }


def system(value: float, headline: str, num_items: int, steps: int = 60) -> dict[str, Any]:
    metric = {"value": value, "low": 0.9 * value, "high": 1.1 * value, "num_items": num_items}
    return {
        "headline": value,
        "seeds": [0],
        "metrics": {headline: metric},
        "num_parameters": 5_300_000 if steps else 0,
        "num_trained": 5_300_000 if steps else 0,
        "steps": steps,
        "best_step": steps,
        "valid": value if steps else None,
        "cut": {},
    }


def task_summary(headline: str, num_items: int, values: dict[str, float], baseline: str) -> dict[str, Any]:
    """Of a task whose baseline learns nothing."""
    systems = {
        name: system(value, headline, num_items, 0 if name == baseline else 60)
        for name, value in values.items()
    }
    for name in values:
        if name != baseline:
            systems[name]["against_baseline"] = {
                "difference": values[name] - values[baseline], "low": -0.1, "high": 0.1, "p_value": 0.5
            }  # fmt: skip
    return {"headline": headline, "baseline": baseline, "facts": {}, "systems": systems}


def completion_summary() -> dict[str, Any]:
    return task_summary("accuracy", 150, {"ngram": 35.1, "pretrained": 51.2, "scratch": 30.4}, "ngram")


def search_summary() -> dict[str, Any]:
    return task_summary("mrr", 600, {"tfidf": 0.612, "pretrained": 0.212, "scratch": 0.231}, "tfidf")


def record(stage: str, summary: dict[str, Any], wall_s: float) -> StageRecord:
    return StageRecord(
        stage=stage,
        key=stage[0] * 64,
        version=1,
        config={},
        inputs={},
        signature="",
        files={},
        summary=summary,
        wall_s=wall_s,
        resumed=stage == "pretrain",
        finished_at="2025-03-01T12:00:00+00:00",
    )


def records() -> dict[str, StageRecord]:
    return {
        "prep": record("prep", prep_summary(), 68.2),
        "pretrain": record("pretrain", pretrain_summary(), 312.0),
        "completion": record("completion", completion_summary(), 41.0),
        "search": record("search", search_summary(), 47.5),
    }


def write_pretrain_journal(path: Path, num_steps: int = 500, tokens_per_step: int = 4096) -> None:
    """A falling loss with a wobble; steps 201 to 230 twice, as after a kill."""
    journal = Journal(path)
    for step in [*range(1, 231), *range(201, num_steps + 1)]:
        metrics = {
            "loss": 3.6 + 5.4 * math.exp(-step / 90) + 0.15 * math.sin(step * 1.7),
            "learning_rate": 1e-3
            * min(1.0, step / 50)
            * (0.55 + 0.45 * math.cos(math.pi * step / num_steps)),
            "tokens_per_s": 7600 + 500 * math.sin(step * 0.9),
            "tokens": float(step * tokens_per_step),
            "grad_norm": 1.0,
        }
        if step % 100 == 0:
            metrics["validation_bits_per_byte"] = 2.1 + 1.6 * math.exp(-step / 120)
            metrics["validation.any_order"] = 2.5 + 1.6 * math.exp(-step / 120)
        journal.step(step, metrics)
    journal.event("resumed from step 200")
    journal.close()
