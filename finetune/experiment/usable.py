"""A saved system in use: rows of texts in, answers out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import TypeAdapter, ValidationError

from cluster.errors import UserError
from finetune.examples import Pool, TaskData
from finetune.experiment.choices import SystemConfig, TaskConfig, asks_for, build_system
from finetune.experiment.exams import Row
from finetune.systems.base import Labeller, OnProgress, Ranker, System, Writer
from finetune.systems.saved import load_weights, module_of, read_saved, saved_base
from finetune.tasks.base import Asks

_NO_POOL = Pool([], [], [], [])
COLUMNS: dict[Asks, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "write": (("text",), ("suffix",)),
    "rank": (("query", "candidate"), ()),
    "label": (("text",), ("other",)),
}
"""What a row must have and may have, by what the system is asked for."""


@dataclass(frozen=True)
class UsableSystem:
    """A system with its weights, ready to answer."""

    asks: Asks
    system: System
    system_config: Any
    task_config: Any
    labels: tuple[str, ...]
    """Names of the labels by number; empty for other systems."""

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> "UsableSystem":
        """From the `model/` folder of a job. Raises UserError when it is none, damaged, or cannot be used so."""
        saved = read_saved(folder)
        try:
            system_config = TypeAdapter(SystemConfig).validate_python(saved.system)
            task_config = TypeAdapter(TaskConfig).validate_python(saved.task)
        except ValidationError as error:
            raise UserError(
                f"{folder}: its config is of another version of permcode: finetune again"
            ) from error
        on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        asks = asks_for(system_config)
        empty: TaskData[Any, Any] = (
            TaskData([], _NO_POOL, _NO_POOL) if asks == "rank" else TaskData([], [], [])
        )
        system = build_system(system_config, saved_base(folder, on), empty, saved.seed)
        module = module_of(system)
        if module is None:
            raise UserError(
                f"{folder}: the system {system_config.kind} only counts its training data and is not saved"
            )
        load_weights(folder, module)
        return cls(asks, system, system_config, task_config, tuple(saved.labels))

    def answer(
        self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress = lambda _: None
    ) -> list[Row]:
        """One answer per row: {"prediction"}, and for labels {"prediction", "probabilities"}.

        Rows have the columns of `COLUMNS`. Raises UserError for a row that lacks one.
        """
        self._check(rows)
        if not rows:
            return []
        if self.asks == "write":
            given = [(str(row["text"]), _optional(row, "suffix")) for row in rows]
            return [{"prediction": text} for text in cast(Writer, self.system).write(given, on_progress)]
        if self.asks == "rank":
            return self._scored(rows, on_progress)
        return self._labelled(rows, on_progress)

    def _scored(self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress) -> list[Row]:
        """Each query against its own candidate; every text is read once."""
        queries = list(dict.fromkeys(str(row["query"]) for row in rows))
        candidates = list(dict.fromkeys(str(row["candidate"]) for row in rows))
        score_QC = cast(Ranker, self.system).scores(queries, candidates, on_progress)
        query_of = {text: number for number, text in enumerate(queries)}
        candidate_of = {text: number for number, text in enumerate(candidates)}
        return [
            {"prediction": float(score_QC[query_of[str(row["query"])], candidate_of[str(row["candidate"])]])}
            for row in rows
        ]

    def _labelled(self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress) -> list[Row]:
        texts = [
            (str(row["text"]),) if (other := _optional(row, "other")) is None else (str(row["text"]), other)
            for row in rows
        ]
        found_NC = cast(Labeller, self.system).probabilities(texts, on_progress)
        return [
            {
                "prediction": self.labels[int(found_C.argmax())],
                "probabilities": dict(zip(self.labels, map(float, found_C), strict=True)),
            }
            for found_C in found_NC
        ]

    def _check(self, rows: Sequence[Mapping[str, Any]]) -> None:
        needed, optional = COLUMNS[self.asks]
        for number, row in enumerate(rows, start=1):
            missing = [name for name in needed if not isinstance(row.get(name), str)]
            if missing:
                also = f" and may have {', '.join(optional)}" if optional else ""
                raise UserError(
                    f"row {number} has no text in {missing[0]!r}: rows for the task {self.task_config.kind} have "
                    f"{', '.join(needed)}{also}"
                )


def _optional(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None
