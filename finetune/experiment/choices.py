"""Every kind of task and of system, and what is made of their configs."""

from typing import Annotated, Any

from pydantic import Field

from finetune.systems.base import Base, System
from finetune.systems.labellers import classifier, zero_shot_cloze
from finetune.systems.labellers import lexical as lexical_labeller
from finetune.systems.predictors import left_to_right, ngram
from finetune.systems.rankers import bi_encoder, zero_shot
from finetune.systems.rankers import lexical as lexical_ranker
from finetune.systems.writers import aligned_rnn, encoder_decoder, permutation_lm, transformer
from finetune.systems.writers import lexical as lexical_writer
from finetune.tasks.base import Asks, Task
from finetune.tasks.clone_pairs import ClonePairs, ClonePairsConfig
from finetune.tasks.clone_retrieval import CloneRetrieval, CloneRetrievalConfig
from finetune.tasks.cloze import Cloze, ClozeConfig
from finetune.tasks.code_search import CodeSearch, CodeSearchConfig
from finetune.tasks.defect import Defect, DefectConfig
from finetune.tasks.generation import Generation, GenerationConfig
from finetune.tasks.humaneval import HumanEval, HumanEvalConfig
from finetune.tasks.infilling import Infilling, InfillingConfig
from finetune.tasks.line_completion import LineCompletion, LineCompletionConfig
from finetune.tasks.repair import Repair, RepairConfig
from finetune.tasks.summarisation import Summarisation, SummarisationConfig
from finetune.tasks.text_search import TextSearch, TextSearchConfig
from finetune.tasks.token_completion import TokenCompletion, TokenCompletionConfig
from finetune.tasks.translation import Translation, TranslationConfig

TaskConfig = Annotated[
    ClonePairsConfig
    | CloneRetrievalConfig
    | ClozeConfig
    | CodeSearchConfig
    | DefectConfig
    | GenerationConfig
    | HumanEvalConfig
    | InfillingConfig
    | LineCompletionConfig
    | RepairConfig
    | SummarisationConfig
    | TextSearchConfig
    | TokenCompletionConfig
    | TranslationConfig,
    Field(discriminator="kind"),
]
SystemConfig = Annotated[
    classifier.ClassifierConfig
    | lexical_labeller.LexicalLabellerConfig
    | zero_shot_cloze.ZeroShotClozeConfig
    | left_to_right.LeftToRightConfig
    | ngram.NgramPredictorConfig
    | bi_encoder.BiEncoderConfig
    | lexical_ranker.LexicalRankerConfig
    | zero_shot.ZeroShotEncoderConfig
    | aligned_rnn.AlignedRnnConfig
    | encoder_decoder.EncoderDecoderConfig
    | permutation_lm.PermutationWriterConfig
    | transformer.TransformerWriterConfig
    | lexical_writer.CopyConfig
    | lexical_writer.ConstantConfig
    | lexical_writer.NearestConfig
    | lexical_writer.NgramConfig,
    Field(discriminator="kind"),
]

_TASKS: dict[type, tuple[Asks, Any]] = {
    ClonePairsConfig: ("label", ClonePairs),
    CloneRetrievalConfig: ("rank", CloneRetrieval),
    ClozeConfig: ("label", Cloze),
    CodeSearchConfig: ("rank", CodeSearch),
    DefectConfig: ("label", Defect),
    GenerationConfig: ("write", Generation),
    HumanEvalConfig: ("write", HumanEval),
    InfillingConfig: ("write", Infilling),
    LineCompletionConfig: ("write", LineCompletion),
    RepairConfig: ("write", Repair),
    SummarisationConfig: ("write", Summarisation),
    TextSearchConfig: ("rank", TextSearch),
    TokenCompletionConfig: ("predict", TokenCompletion),
    TranslationConfig: ("write", Translation),
}
_SYSTEMS: dict[type, tuple[Asks, bool, Any]] = {
    classifier.ClassifierConfig: ("label", True, classifier.build),
    lexical_labeller.LexicalLabellerConfig: ("label", False, lexical_labeller.build),
    zero_shot_cloze.ZeroShotClozeConfig: ("label", False, zero_shot_cloze.build),
    left_to_right.LeftToRightConfig: ("predict", True, left_to_right.build),
    ngram.NgramPredictorConfig: ("predict", False, ngram.build),
    bi_encoder.BiEncoderConfig: ("rank", True, bi_encoder.build),
    lexical_ranker.LexicalRankerConfig: ("rank", False, lexical_ranker.build),
    zero_shot.ZeroShotEncoderConfig: ("rank", False, zero_shot.build),
    aligned_rnn.AlignedRnnConfig: ("write", True, aligned_rnn.build),
    encoder_decoder.EncoderDecoderConfig: ("write", True, encoder_decoder.build),
    permutation_lm.PermutationWriterConfig: ("write", True, permutation_lm.build),
    transformer.TransformerWriterConfig: ("write", True, transformer.build),
    lexical_writer.CopyConfig: ("write", False, lexical_writer.build),
    lexical_writer.ConstantConfig: ("write", False, lexical_writer.build),
    lexical_writer.NearestConfig: ("write", False, lexical_writer.build),
    lexical_writer.NgramConfig: ("write", False, lexical_writer.build),
}
"""By config: what the system is asked for, whether it learns by steps, how it is built."""


def asks_for(config: Any) -> Asks:
    """What a task asks for, or a system is asked for."""
    asks: Asks = _TASKS[type(config)][0] if type(config) in _TASKS else _SYSTEMS[type(config)][0]
    return asks


def task_of(config: Any) -> Task:
    """The task of a config."""
    task: Task = _TASKS[type(config)][1](config)
    return task


def learns(config: Any) -> bool:
    """Whether a system is trained."""
    return _SYSTEMS[type(config)][1]


def build_system(config: Any, base: Base, data: Any, seed: int) -> System:
    """The system before training. Raises UserError for settings that do not fit the base model or the data."""
    system: System = _SYSTEMS[type(config)][2](config, base, data, seed)
    return system
