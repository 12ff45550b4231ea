"""The graph of a run: prep -> pretrain -> its tasks -> report.

The stages' modules are imported when a stage runs: they import Ray, MLflow and DeepSpeed, which a command that runs
nothing (`--help`, `--dry-run`, a run with nothing left to do) does not need.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.resources import ResourcesConfig
from cluster.storage import fingerprint, sha256_file
from data_prep.config import PrepConfig
from data_prep.finished.manifest import FORMAT_VERSION, MANIFEST_NAME, TOKENIZER_NAME
from finetune.experiment.config import ExperimentConfig
from pipeline.folder.config import RunConfig
from pipeline.folder.differences import without_added_keys
from pipeline.folder.graph import Stage, StageContext
from pipeline.folder.sections import KEYS_WITHOUT_EFFECT_ON_OUTPUTS
from pipeline.run.task_stage import StartingPoint, data_hashes, task_stage
from pretrain.checkpoint.compatibility import without_free
from pretrain.data.config import DataConfig
from pretrain.files import PretrainFiles


def build_stages(config: RunConfig, accepted: frozenset[str] = frozenset()) -> list[Stage]:
    """Return the stages of a run, each after those it reads. `accepted` are settings that may change on a resume."""
    return [
        Stage(
            name="prep",
            config=without_added_keys({"seed": config.seed, **config.prep.model_dump(mode="json")}),
            run=partial(_prep, config),
            signature=partial(_corpus_signature, config.prep),
            version=FORMAT_VERSION,
            artifacts=("manifest.json",),
            check_inputs=partial(_check_sets, config.prep),
        ),
        Stage(
            name="pretrain",
            config=without_added_keys(
                {"seed": config.seed, **without_free(config.pretrain.model_dump(mode="json"))}
            ),
            run=partial(_pretrain, config, accepted),
            inputs=("prep",),
            version=3,
            check_inputs=partial(_check_gpus, config),
            journals={"": PretrainFiles.JOURNAL},
            artifacts=(PretrainFiles.MODEL,),
            headlines=tuple(f"validation.{name}_bits_per_byte" for name in ("model", "unigram", "bigram")),
        ),
        *(
            task_stage(
                name,
                task,
                start=partial(_pretrained, config.pretrain.data),
                signature=partial(_data_signature, task),
                inputs=("prep", "pretrain"),
            )
            for name, task in config.finetune.items()
        ),
        Stage(
            name="report",
            config=without_added_keys(
                {"run": config.model_dump(mode="json", exclude=set(KEYS_WITHOUT_EFFECT_ON_OUTPUTS))}
            ),
            run=partial(_report, config),
            inputs=("prep", "pretrain", *config.finetune),
            needs_ray=False,
        ),
    ]


def _corpus_signature(config: PrepConfig) -> str:
    from data_prep.steps.inputs import input_signature

    return input_signature(config)


def _check_sets(config: PrepConfig, folder: Path) -> tuple[str, ...]:
    from data_prep.decontamination.choice import choose_sets

    return () if (folder / MANIFEST_NAME).is_file() else choose_sets(config.decontamination, folder).lines


def _prep(config: RunConfig, context: StageContext) -> dict[str, Any]:
    from data_prep.finished.forget_requests import read_requests
    from data_prep.stage import run_prep

    forgotten = read_requests(context.folder.parent)
    return run_prep(config.prep, config.seed, context.folder, context.reporter, forgotten)


def _check_gpus(config: RunConfig, folder: Path) -> tuple[str, ...]:
    """Check the GPUs of this machine if the run's own Ray would use them; those of a cluster are checked by workers."""
    from pretrain.gpu_check import check_gpus_here

    if os.environ.get("RAY_ADDRESS"):
        return ()
    resources = config.resources.get("pretrain", ResourcesConfig())
    return check_gpus_here(config.pretrain, config.prep.tokenizer.vocab_size, resources)


def _pretrain(config: RunConfig, accepted: frozenset[str], context: StageContext) -> dict[str, Any]:
    from pretrain.stage import run_pretrain

    prep = context.inputs["prep"]
    if not (context.folder / PretrainFiles.JOURNAL).exists():
        _check_tasks(config, prep)
    return run_pretrain(
        config.pretrain, config.seed, prep, context.folder, context.reporter, accepted, context.resources
    )


def _check_tasks(config: RunConfig, prep: Path) -> None:
    """Raise UserError for a task that could not run after the pretraining: bad data, or systems that do not fit."""
    from data_prep.tokenizer import CodeTokenizer
    from finetune.experiment.preflight import survey_before_pretraining
    from pretrain.weights import ModelDescription

    tokenizer = CodeTokenizer.load(prep / TOKENIZER_NAME)
    pretrain = config.pretrain
    description = ModelDescription(pretrain.model, tokenizer.vocab_size, pretrain.segment_tokens)
    for name, task in config.finetune.items():
        try:
            survey_before_pretraining(task, description, tokenizer, prep)
        except UserError as error:
            raise UserError(f"finetune.{name}: {error}") from None


def _pretrained(data: DataConfig, context: StageContext) -> StartingPoint:
    prep = context.inputs["prep"]
    return StartingPoint(
        context.inputs["pretrain"] / PretrainFiles.MODEL,
        prep,
        sha256_file(prep / MANIFEST_NAME),
        data.locations(str(prep.absolute())),
    )


def _data_signature(task: ExperimentConfig) -> str:
    """Return the fingerprint of the task's data files. The corpus and the model are outputs of other stages."""
    return fingerprint(data_hashes(task))


def _report(config: RunConfig, context: StageContext) -> dict[str, Any]:
    from pipeline.report.report import write_report

    return write_report(config.model_dump(mode="json"), context.inputs, context.folder)
