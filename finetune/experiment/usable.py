"""A saved system in use: rows of texts in, answers out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from cluster.errors import UserError
from cluster.memory import check_memory
from finetune.decoding.config import DecodingConfig
from finetune.examples import Code, LabellingData, Pool, PredictingData, RankingData, WritingData
from finetune.experiment.choices import SystemConfig, TaskConfig
from finetune.experiment.exams import Row, token_row
from finetune.systems.base import Asks, Labeller, OnProgress, Predictor, Ranker, System, Writer
from finetune.systems.saved import load_weights, module_of, read_saved, saved_base
from finetune.tasks.base import LabellingTask, PredictingTask
from finetune.tasks.labelling import given_labels

TrainingData = Callable[[Any], Any]
"""A task's data by the task's config: what systems that only count are made from again."""

_MATRICES = 2
"""Of scores that are held at once: a ranker's, and what it is made of."""
_UNREADABLE: Row = {"prediction": None, "tokens": [], "ranks": []}
_NO_POOL = Pool([], [], [], [])


@dataclass(frozen=True)
class Columns:
    """What a row must have, and may have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


def columns_of(task_config: Any) -> Columns:
    """Of the rows that a system for this task answers to."""
    if task_config.asks == "rank":
        return Columns(("query", "candidate"))
    if task_config.asks == "label":
        return Columns(("text", "other") if _num_texts(task_config) == 2 else ("text",))
    return Columns(("text",), ("suffix",) if task_config.kind == "infilling" else ())


@dataclass(frozen=True)
class UsableSystem:
    """A system with its weights, ready to answer."""

    asks: Asks
    system: System
    system_config: Any
    task_config: Any
    labels: tuple[str, ...]
    """Names of the labels by number; empty for other systems."""
    threshold: float | None = None
    """Of the second of two labels; None gives the likelier one."""

    @classmethod
    def load(
        cls,
        folder: Path,
        device: str | None = None,
        decoding: Mapping[str, Any] | None = None,
        training: TrainingData | None = None,
    ) -> "UsableSystem":
        """From the `model/` folder of a job. `decoding` has settings that replace those it was trained with.

        Raises UserError when it is none, damaged, or cannot be used so; for a system that only counts, also where
        there is no `training`.
        """
        saved = read_saved(folder)
        try:
            system_config = TypeAdapter(SystemConfig).validate_python(_with_decoding(saved.system, decoding))
            task_config = TypeAdapter(TaskConfig).validate_python(saved.task)
        except ValidationError as error:
            raise UserError(
                f"{folder}: its config is of another version of permcode: finetune again"
            ) from error
        on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        asks = system_config.asks
        data = _no_data(task_config, len(saved.labels))
        if not saved.has_weights:
            if training is None:
                raise UserError(
                    f"{folder}: the system {system_config.kind} only counts its training data and is not saved: use "
                    "another"
                )
            data = training(task_config)
        system = system_config.build(saved_base(folder, on), data, saved.seed)
        if saved.has_weights:
            module = module_of(system)
            assert module is not None
            load_weights(folder, module)
        return cls(asks, system, system_config, task_config, tuple(saved.labels), saved.threshold)

    def answer(
        self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress = lambda _: None
    ) -> list[Row]:
        """One answer per row: {"prediction"}; for labels also {"probabilities"}, for tokens {"tokens", "ranks"}.

        Rows have the columns of `columns_of`. Raises UserError for a row that lacks one.
        """
        self._check(rows)
        if not rows:
            return []
        if self.asks == "write":
            has_suffix = "suffix" in columns_of(self.task_config).optional
            given = [(str(row["text"]), _optional(row, "suffix") if has_suffix else None) for row in rows]
            return [{"prediction": text} for text in cast(Writer, self.system).write(given, on_progress)]
        if self.asks == "rank":
            return self._scored(rows, on_progress)
        if self.asks == "predict":
            return self._predicted(rows, on_progress)
        return self._labelled(rows, on_progress)

    def _predicted(self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress) -> list[Row]:
        """The share of tokens that are the first choice, with the tokens and their ranks.

        None for a text without a code token, or one that cannot be read as the task's language.
        """
        task, predictor = cast(PredictingTask, self.task_config.build()), cast(Predictor, self.system)
        items = [task.code(str(number), str(row["text"])) for number, row in enumerate(rows)]
        rank_DT = predictor.ranks([item for item in items if item.lexemes], on_progress)
        ranks = iter(rank_DT)
        return [_told(item, next(ranks)) if item.lexemes else dict(_UNREADABLE) for item in items]

    def _scored(self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress) -> list[Row]:
        """Each query against its own candidate; every text is read once."""
        queries = list(dict.fromkeys(str(row["query"]) for row in rows))
        candidates = list(dict.fromkeys(str(row["candidate"]) for row in rows))
        check_memory(
            _MATRICES * 8 * len(queries) * len(candidates),
            torch.device("cpu"),
            f"comparing {len(queries):,} queries with {len(candidates):,} candidates",
            "give fewer rows at a time",
        )
        score_QC = cast(Ranker, self.system).scores(queries, candidates, on_progress)
        query_of = {text: number for number, text in enumerate(queries)}
        candidate_of = {text: number for number, text in enumerate(candidates)}
        return [
            {"prediction": float(score_QC[query_of[str(row["query"])], candidate_of[str(row["candidate"])]])}
            for row in rows
        ]

    def _labelled(self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress) -> list[Row]:
        texts = [tuple(str(row[name]) for name in columns_of(self.task_config).needed) for row in rows]
        found_NC = cast(Labeller, self.system).probabilities(texts, on_progress)
        return [
            {
                "prediction": self.labels[given],
                "probabilities": dict(zip(self.labels, map(float, found_C), strict=True)),
            }
            for given, found_C in zip(given_labels(found_NC, self.threshold), found_NC, strict=True)
        ]

    def _check(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = columns_of(self.task_config)
        for number, row in enumerate(rows, start=1):
            missing = [name for name in columns.needed if not isinstance(row.get(name), str)]
            if missing:
                also = f" and may have {', '.join(columns.optional)}" if columns.optional else ""
                raise UserError(
                    f"row {number} has no text in {missing[0]!r}: rows for the task {self.task_config.kind} have "
                    f"{', '.join(columns.needed)}{also}"
                )
            broken = [name for name in (*columns.needed, *columns.optional) if not _is_text(row.get(name))]
            if broken:
                raise UserError(
                    f"row {number} has half a character (a lone surrogate) in {broken[0]!r}: give whole ones"
                )


def _told(item: Code, rank_T: NDArray[np.float64]) -> Row:
    told = token_row(item, rank_T)
    return {
        "prediction": float((rank_T == 1).mean()),
        "tokens": told["tokens"],
        "ranks": told["ranks"],
    }


def _is_text(value: Any) -> bool:
    """JSON may name halves of characters, which no encoding can write."""
    return not isinstance(value, str) or not any("\ud800" <= one <= "\udfff" for one in value)


def _with_decoding(system: Mapping[str, Any], changes: Mapping[str, Any] | None) -> dict[str, Any]:
    if not changes:
        return dict(system)
    if "decoding" not in system:
        raise UserError(
            f"decoding.{next(iter(changes))}: the system {system['kind']} does not decode anything"
        )
    changed = {**system["decoding"], **changes}
    try:
        DecodingConfig.model_validate(changed)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(map(str, ("decoding", *found["loc"])))
        raise UserError(f"{where}: {found['msg'].removeprefix('Value error, ')}") from None
    return {**system, "decoding": changed}


def _no_data(task_config: Any, num_labels: int) -> Any:
    """Splits without items, for systems whose weights are loaded afterwards."""
    match task_config.asks:
        case "write":
            return WritingData([], [], [])
        case "rank":
            return RankingData([], _NO_POOL, _NO_POOL)
        case "label":
            return LabellingData([], [], [], {}, _num_texts(task_config), num_labels)
        case "predict":
            return PredictingData([], [], [])


def _num_texts(task_config: Any) -> int:
    return cast(LabellingTask, task_config.build()).num_texts


def _optional(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None
