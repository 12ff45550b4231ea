"""Texts as the tokens that writers read and write, truncated at the config's limits.

Shapes: T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizer import CodeTokenizer
from finetune.modalities.writing import Pair
from finetune.systems.writers.config import WriterConfig
from pretrain.inference.generation import Generated

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """A source: a text, or the two sides of a hole."""

    before_T: Tokens
    after_T: Tokens | None
    is_cut: bool
    after_is_cut: bool = False

    @property
    def num_tokens(self) -> int:
        """The number of tokens of both sides."""
        return len(self.before_T) + (0 if self.after_T is None else len(self.after_T))

    def joined(self, hole_id: int) -> Tokens:
        """Return one sequence, with `<hole>` at the hole."""
        if self.after_T is None:
            return self.before_T
        return np.concatenate([self.before_T, [hole_id], self.after_T])


@dataclass(frozen=True)
class Target:
    """A text to be written; without its end if it was truncated."""

    tokens_T: Tokens
    is_cut: bool

    def ended(self, end_id: int) -> Tokens:
        """Return the tokens with the end token, or without it if they were truncated."""
        return self.tokens_T if self.is_cut else np.append(self.tokens_T, end_id)


class Sequences:
    """Tokenizes texts and counts those that are truncated."""

    def __init__(self, tokenizer: CodeTokenizer, config: WriterConfig) -> None:
        self._tokenizer, self._config = tokenizer, config
        self.cut: dict[str, int] = {}
        """The numbers of truncated training sources and targets, sources of the last written texts, and these texts."""

    def training(self, pairs: Sequence[Pair]) -> tuple[list[Source], list[Target]]:
        """Return the sources, and the first reference of each as its target."""
        sources = self._sources([(pair.source, pair.suffix) for pair in pairs])
        limit = self._config.target_tokens
        targets = [
            Target(tokens_T[:limit].astype(np.int64), len(tokens_T) > limit)
            for tokens_T in self._tokenizer.encode_batch([pair.references[0] for pair in pairs])
        ]
        self.cut["train_sources"] = sum(source.is_cut for source in sources)
        self.cut["train_targets"] = sum(target.is_cut for target in targets)
        return sources, targets

    def written(self, sources: Sequence[tuple[str, str | None]]) -> list[Source]:
        """Return the sources of texts to write."""
        found = self._sources(sources)
        self.cut["written_sources"] = sum(source.is_cut for source in found)
        self.cut["written_texts"] = 0
        return found

    def texts(self, found: Sequence[Generated]) -> list[str]:
        """Decode the written texts; those that did not end within their limit are counted."""
        self.cut["written_texts"] += sum(not one.ended or one.forced for one in found)
        return [self._tokenizer.decode(one.tokens) for one in found]

    def _sources(self, texts: Sequence[tuple[str, str | None]]) -> list[Source]:
        if not texts:
            return []
        before = self._tokenizer.encode_batch([source for source, _ in texts])
        after = self._tokenizer.encode_batch([suffix or "" for _, suffix in texts])
        return [
            self._cut(before_T.astype(np.int64), None if suffix is None else after_T.astype(np.int64))
            for before_T, after_T, (_, suffix) in zip(before, after, texts, strict=True)
        ]

    def _cut(self, before_T: Tokens, after_T: Tokens | None) -> Source:
        limit = self._config.source_tokens
        if after_T is None:
            kept_T = before_T[:limit] if self._config.keep == "start" else before_T[-limit:]
            return Source(kept_T, None, is_cut=len(before_T) > limit)
        # Half for each side, more if the other needs less.
        shown_T = after_T[: max(limit // 2, limit - len(before_T))]
        kept_T = before_T[max(0, len(before_T) - (limit - len(shown_T))) :]
        after_is_cut = len(shown_T) < len(after_T)
        return Source(kept_T, shown_T, after_is_cut or len(kept_T) < len(before_T), after_is_cut)
