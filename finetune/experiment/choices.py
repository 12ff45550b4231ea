"""Every kind of task and of system. A new one is a file, and a line here."""

from typing import Annotated

from pydantic import Field

from finetune.modalities.base import Asks, Modality
from finetune.modalities.labelling import Labelling
from finetune.modalities.predicting import Predicting
from finetune.modalities.ranking import Ranking
from finetune.modalities.writing import Writing
from finetune.systems.labellers import classifier, zero_shot_cloze
from finetune.systems.labellers import lexical as lexical_labeller
from finetune.systems.predictors import left_to_right, ngram
from finetune.systems.rankers import bi_encoder, zero_shot
from finetune.systems.rankers import lexical as lexical_ranker
from finetune.systems.writers import aligned_rnn, encoder_decoder, permutation_lm, transformer
from finetune.systems.writers import lexical as lexical_writer
from finetune.tasks.clone_pairs import ClonePairsConfig
from finetune.tasks.clone_retrieval import CloneRetrievalConfig
from finetune.tasks.cloze import ClozeConfig
from finetune.tasks.code_search import CodeSearchConfig
from finetune.tasks.defect import DefectConfig
from finetune.tasks.generation import GenerationConfig
from finetune.tasks.humaneval import HumanEvalConfig
from finetune.tasks.infilling import InfillingConfig
from finetune.tasks.line_completion import LineCompletionConfig
from finetune.tasks.repair import RepairConfig
from finetune.tasks.summarisation import SummarisationConfig
from finetune.tasks.text_search import TextSearchConfig
from finetune.tasks.token_completion import TokenCompletionConfig
from finetune.tasks.translation import TranslationConfig

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

MODALITIES: dict[Asks, Modality] = {
    "write": Writing(),
    "rank": Ranking(),
    "label": Labelling(),
    "predict": Predicting(),
}
