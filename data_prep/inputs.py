"""What prep reads from outside, without reading it."""

from dataclasses import dataclass

from cluster.storage import fingerprint, sha256_bytes
from data_prep.config import PrepConfig
from data_prep.decontamination.index import build_index, without_missing
from data_prep.reading_config import ReadingConfig
from data_prep.sources.plan import plan_units
from data_prep.sources.units import WorkUnit


def input_signature(config: PrepConfig) -> str:
    """Changes when what the sources hold may have changed, or the programs that decide what is kept.

    Reads no file's content but the beginnings of tables. UserError when a source is missing, offers nothing or lacks
    a column that the user names.
    """
    return Inputs.of(config).signature


@dataclass(frozen=True)
class Inputs:
    """What prep reads from outside: the sources, cut into units of work, and the evaluation sets' index (None
    where there are none). `missing` says which sets are not there and need not be."""

    units: tuple[WorkUnit, ...]
    index: bytes | None
    signature: str
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: PrepConfig) -> "Inputs":
        units = tuple(plan_units(config.source))
        sets, missing = without_missing(config.decontamination)
        index = build_index(sets) if sets.sets else None
        index_sha256 = None if index is None else sha256_bytes(index)
        read = [(unit.source, unit.name, unit.signature) for unit in units]
        return cls(
            units, index, fingerprint([ReadingConfig.of(config).versions(), index_sha256, read]), missing
        )
