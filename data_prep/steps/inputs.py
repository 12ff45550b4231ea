"""The inputs of prep, listed without reading their contents."""

from dataclasses import dataclass

from cluster.storage import fingerprint, sha256_bytes
from data_prep.config import PrepConfig
from data_prep.decontamination.choice import ChosenSets, required_sets
from data_prep.decontamination.index import build_index
from data_prep.sources.plan import plan_units
from data_prep.sources.units import WorkUnit
from data_prep.steps.reading_config import ReadingConfig


def input_signature(config: PrepConfig) -> str:
    """Return a signature that changes when the inputs of prep may have changed.

    Inputs are the files of the sources, the required evaluation sets and the versions of the programs that decide what
    is kept. Optional evaluation sets do not count: see `data_prep.decontamination.choice`. Reads no contents except the
    beginnings of tables. UserError when a source is missing or empty, or lacks a column that the user names.
    """
    return Inputs.of(config).signature


@dataclass(frozen=True)
class Inputs:
    """The inputs of prep: the sources, divided into units of work, and the index of the required evaluation sets (None
    if there are none)."""

    units: tuple[WorkUnit, ...]
    index: bytes | None
    signature: str

    @classmethod
    def of(cls, config: PrepConfig) -> "Inputs":
        units = tuple(plan_units(config.source))
        required = required_sets(config.decontamination)
        index = build_index(required) if required.sets else None
        index_sha256 = None if index is None else sha256_bytes(index)
        read = [(unit.source, unit.name, unit.signature) for unit in units]
        return cls(units, index, fingerprint([ReadingConfig.of(config).versions(), index_sha256, read]))

    def index_with(self, chosen: ChosenSets) -> bytes | None:
        """Return the index of all sets that are kept out; None if there are none."""
        is_more = any(digest is not None for digest in chosen.digests.values())
        return build_index(chosen.config) if is_more else self.index
