"""Every kind of task and of system. docs/extending.md says how to add one: a file, and a line here."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from finetune.modalities.base import Modality, ModalityName
from finetune.modalities.labelling import Labelling
from finetune.modalities.predicting import Predicting
from finetune.modalities.ranking import Ranking
from finetune.modalities.writing import Writing
from finetune.systems.base import SystemConfigBase
from finetune.tasks.base import TaskConfigBase

_TASKS = (
    "clone_pairs.ClonePairsConfig",
    "clone_retrieval.CloneRetrievalConfig",
    "cloze.ClozeConfig",
    "code_search.CodeSearchConfig",
    "defect.DefectConfig",
    "generation.GenerationConfig",
    "humaneval.HumanEvalConfig",
    "humaneval_infilling.HumanEvalInfillingConfig",
    "infilling.InfillingConfig",
    "line_completion.LineCompletionConfig",
    "repair.RepairConfig",
    "summarisation.SummarisationConfig",
    "text_search.TextSearchConfig",
    "token_completion.TokenCompletionConfig",
    "translation.TranslationConfig",
)
"""For each task, its module in `finetune.tasks` and its config class."""
_SYSTEMS = (
    "labellers.classifier.ClassifierConfig",
    "labellers.lexical.LexicalLabellerConfig",
    "labellers.zero_shot_cloze.ZeroShotClozeConfig",
    "predictors.left_to_right.LeftToRightConfig",
    "predictors.ngram.NgramPredictorConfig",
    "rankers.bi_encoder.BiEncoderConfig",
    "rankers.lexical.LexicalRankerConfig",
    "rankers.bi_encoder.ZeroShotEncoderConfig",
    "writers.aligned_rnn.AlignedRnnConfig",
    "writers.encoder_decoder.EncoderDecoderConfig",
    "writers.permutation_lm.PermutationWriterConfig",
    "writers.transformer.TransformerWriterConfig",
    "writers.zero_shot_infiller.ZeroShotInfillerConfig",
    "writers.lexical.CopyConfig",
    "writers.lexical.ConstantConfig",
    "writers.lexical.NearestConfig",
    "writers.lexical.NgramConfig",
)
"""For each system, its module in `finetune.systems` and its config class."""


def _one_of(package: str, names: Sequence[str]) -> Any:
    """Return the union of the config classes, discriminated by `kind`."""
    classes = []
    for name in names:
        module, _, class_name = name.rpartition(".")
        classes.append(getattr(import_module(f"{package}.{module}"), class_name))
    return Annotated[Union[tuple(classes)], Field(discriminator="kind")]  # noqa: UP007


if TYPE_CHECKING:
    TaskConfig = TaskConfigBase
    SystemConfig = SystemConfigBase
else:
    TaskConfig = _one_of("finetune.tasks", _TASKS)
    SystemConfig = _one_of("finetune.systems", _SYSTEMS)

MODALITIES: dict[ModalityName, Modality] = {
    "write": Writing(),
    "rank": Ranking(),
    "label": Labelling(),
    "predict": Predicting(),
}
