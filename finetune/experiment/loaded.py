"""A saved system loaded for use: rows of texts in, answers out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from cluster.errors import UserError
from finetune.decoding.config import DecodingConfig
from finetune.experiment.kinds import MODALITIES, SystemConfig, TaskConfig
from finetune.modalities.base import Columns, ModalityName, OnProgress, Row, TrainedSystem
from finetune.systems.saved import load_weights, module_of, read_saved, saved_base

TrainingData = Callable[[Any], Any]
"""Returns a task's data for the task's config; systems that only count are rebuilt from it."""


def columns_of(task_config: Any) -> Columns:
    """Return the columns of the rows that a system for this task answers."""
    return MODALITIES[task_config.modality].columns(task_config)


@dataclass(frozen=True, kw_only=True)
class LoadedSystem(TrainedSystem):
    """A system that was saved and loaded, ready to answer."""

    modality: ModalityName
    system_config: Any

    @classmethod
    def load(
        cls,
        folder: Path,
        device: str | None = None,
        decoding: Mapping[str, Any] | None = None,
        training: TrainingData | None = None,
    ) -> "LoadedSystem":
        """Load a system from the `model/` folder of a job. `decoding` has settings that replace the saved ones.

        Raises UserError if the folder is not a saved system, is damaged, or cannot be used with these settings; for a
        system that only counts, also if `training` is None.
        """
        saved = read_saved(folder)
        try:
            system_config = TypeAdapter[Any](SystemConfig).validate_python(
                _with_decoding(saved.system, decoding)
            )
            task_config = TypeAdapter[Any](TaskConfig).validate_python(saved.task)
        except ValidationError as error:
            raise UserError(
                f"{folder}: its config is of another version of permcode: finetune again"
            ) from error
        on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        modality = system_config.modality
        data = MODALITIES[modality].no_data(task_config, len(saved.labels))
        if not saved.has_weights:
            if training is None:
                raise UserError(
                    f"{folder}: the system {system_config.kind} only counts its training data and is not saved: use "
                    "another"
                )
            data = training(task_config)
        system = system_config.build(saved_base(saved, folder, on), data, saved.seed)
        if saved.has_weights:
            module = module_of(system)
            assert module is not None
            load_weights(folder, module)
        return cls(
            modality=modality,
            system=system,
            system_config=system_config,
            task_config=task_config,
            labels=tuple(saved.labels),
            threshold=saved.threshold,
        )

    def answer(
        self, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress = lambda _: None
    ) -> list[Row]:
        """Return one answer per row: {"prediction"}; for labels also {"probabilities"}, for tokens {"tokens", "ranks"}.

        Rows have the columns of `columns_of`. Raises UserError for a row that lacks one.
        """
        self._check(rows)
        if not rows:
            return []
        return MODALITIES[self.modality].answer(self, rows, on_progress)

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


def _is_text(value: Any) -> bool:
    """Return False for a string with a lone surrogate: JSON allows those, and no encoding can write them."""
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
