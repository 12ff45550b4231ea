"""Labelling by the words of a text: the baseline of every model that labels.

Shapes: N items, C labels, F features.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.lexical import sub_tokens
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.labelling import LabellingData
from finetune.systems.base import Base, SystemConfigBase

Texts = tuple[str, ...]


class LexicalLabellerConfig(SystemConfigBase):
    """The settings of a labeller by words. Words are parts of identifiers, in lower case; texts are not truncated."""

    modality: ClassVar[ModalityName] = "label"
    learns: ClassVar[bool] = False

    kind: Literal["lexical_labeller"] = "lexical_labeller"
    method: Literal["logistic", "most_frequent"] = "logistic"
    """Logistic regression on the TF-IDF vector of one text, or on the similarity of two; or the labels' shares in the
    training items, for every text."""

    def build(self, base: Base | None, data: LabellingData, seed: int) -> "LexicalLabeller":
        """Build and fit the labeller. Raises UserError without training items. `base` and `seed` have no effect."""
        return LexicalLabeller(self, data)


class LexicalLabeller:
    """A `Labeller` that is fitted when it is built; it has no training steps."""

    learner = None

    def __init__(self, config: LexicalLabellerConfig, data: LabellingData) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        if not data.train:
            raise UserError("a lexical labeller needs training items: the train split is empty")
        label_N = np.array([item.label for item in data.train])
        self._num_texts = len(data.train[0].texts)
        self._share_C = np.bincount(label_N, minlength=data.shape()[1]) / len(label_N)
        self._model: Any = None
        if config.method == "most_frequent" or len(np.unique(label_N)) == 1:
            return
        # A text without words counts as one empty word, because scikit-learn rejects an empty vocabulary.
        self._vectorizer = TfidfVectorizer(analyzer=lambda text: sub_tokens(text) or [""], sublinear_tf=True)
        self._vectorizer.fit([text for item in data.train for text in item.texts])
        self._model = LogisticRegression(max_iter=1000)
        self._model.fit(self._features([item.texts for item in data.train]), label_N)

    def probabilities(self, texts: Sequence[Texts], on_progress: OnProgress) -> NDArray[np.float64]:
        """Return the probabilities [N, C]. A label that no training item has gets probability 0."""
        found_NC = np.tile(self._share_C, (len(texts), 1))
        if self._model is not None and texts:
            found_NC[:] = 0.0
            found_NC[:, self._model.classes_] = self._model.predict_proba(self._features(texts))
        on_progress(len(texts))
        return found_NC

    def _features(self, texts: Sequence[Texts]) -> Any:
        """Return sparse TF-IDF vectors of single texts; for pairs [N, F] of cosine, shared words, ratio of lengths."""
        sides = [self._vectorizer.transform([one[side] for one in texts]) for side in range(self._num_texts)]
        if len(sides) == 1:
            return sides[0]
        cosine_N = np.asarray(sides[0].multiply(sides[1]).sum(axis=1)).ravel()
        return np.column_stack([cosine_N, np.array([_likeness(*one) for one in texts])])


def _likeness(first: str, second: str) -> tuple[float, float]:
    """Return the shared words as a share of all words, and the shorter text's length as a share of the longer's."""
    one, other = sub_tokens(first), sub_tokens(second)
    every = set(one) | set(other)
    shared = len(set(one) & set(other)) / max(1, len(every))
    return shared, min(len(one), len(other)) / max(1, len(one), len(other))
