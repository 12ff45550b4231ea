"""The graph of a run: prep -> pretrain -> completion, search -> report.

The stages' modules are imported when a stage runs: they bring torch and Ray, which a command that only looks
(`--help`, `--dry-run`, a run with nothing left to do) does not need.
"""

from functools import partial
from typing import Any

from cluster.journal import JOURNAL_NAME
from data_prep.config import PrepConfig
from data_prep.manifest import FORMAT_VERSION
from pipeline.config import KEYS_WITHOUT_EFFECT_ON_OUTPUTS, RunConfig
from pipeline.graph import Stage, StageContext
from pretrain.checkpoint.compatibility import without_free

FINETUNE_STAGES = ("completion", "search")
_ARM_JOURNALS = {arm: f"{arm}/{JOURNAL_NAME}" for arm in ("pretrained", "scratch")}


def build_stages(config: RunConfig, accepted: frozenset[str] = frozenset()) -> list[Stage]:
    """Every stage of a run, each after those it reads. `accepted`: settings that pretraining may go on with changed."""
    finetune = config.finetune
    finetune_inputs = ("prep", "pretrain")
    return [
        Stage(
            name="prep",
            config=_identity(config, config.prep),
            run=partial(_prep, config),
            signature=partial(_corpus_signature, config.prep),
            version=FORMAT_VERSION,
            artifacts=("manifest.json",),
        ),
        Stage(
            name="pretrain",
            config={"seed": config.seed, **without_free(config.pretrain.model_dump(mode="json"))},
            run=partial(_pretrain, config, accepted),
            inputs=("prep",),
            version=3,
            journals={"": JOURNAL_NAME},
            artifacts=("model",),
            headlines=tuple(f"validation.{name}_bits_per_byte" for name in ("model", "unigram", "bigram")),
        ),
        Stage(
            name="completion",
            config=_identity(config, finetune.completion),
            run=partial(_completion, config),
            inputs=finetune_inputs,
            journals=_ARM_JOURNALS,
            artifacts=("pretrained/model",),
            headlines=("pretrained.accuracy", "scratch.accuracy", "baseline_bigram_accuracy"),
        ),
        Stage(
            name="search",
            config=_identity(config, finetune.search),
            run=partial(_search, config),
            inputs=finetune_inputs,
            journals=_ARM_JOURNALS,
            artifacts=("pretrained/model",),
            headlines=("pretrained.mrr", "scratch.mrr", "tfidf_mrr"),
        ),
        Stage(
            name="report",
            config={"run": config.model_dump(mode="json", exclude=set(KEYS_WITHOUT_EFFECT_ON_OUTPUTS))},
            run=partial(_report, config),
            inputs=("prep", "pretrain", *FINETUNE_STAGES),
            needs_ray=False,
        ),
    ]


def _identity(config: RunConfig, part: Any) -> dict[str, Any]:
    return {"seed": config.seed, **part.model_dump(mode="json")}


def _corpus_signature(config: PrepConfig) -> str:
    from data_prep.inputs import input_signature

    return input_signature(config)


def _prep(config: RunConfig, context: StageContext) -> dict[str, Any]:
    from data_prep.forget_requests import read_requests
    from data_prep.stage import run_prep

    forgotten = read_requests(context.folder.parent)
    return run_prep(config.prep, config.seed, context.folder, context.reporter, forgotten)


def _pretrain(config: RunConfig, accepted: frozenset[str], context: StageContext) -> dict[str, Any]:
    from pretrain.stage import run_pretrain

    prep = context.inputs["prep"]
    return run_pretrain(config.pretrain, config.seed, prep, context.folder, context.reporter, accepted)


def _completion(config: RunConfig, context: StageContext) -> dict[str, Any]:
    from finetune.stage import run_completion

    prep, pretrain = context.inputs["prep"], context.inputs["pretrain"]
    return run_completion(
        config.finetune.completion, config.seed, prep, pretrain, context.folder, context.reporter
    )


def _search(config: RunConfig, context: StageContext) -> dict[str, Any]:
    from finetune.stage import run_search

    prep, pretrain = context.inputs["prep"], context.inputs["pretrain"]
    return run_search(config.finetune.search, config.seed, prep, pretrain, context.folder, context.reporter)


def _report(config: RunConfig, context: StageContext) -> dict[str, Any]:
    from pipeline.report import write_report

    return write_report(config.model_dump(mode="json"), context.inputs, context.folder)
