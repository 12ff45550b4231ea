"""What prep reads from outside, without reading it."""

from dataclasses import dataclass

from cluster.storage import fingerprint, sha256_bytes
from data_prep.config import PrepConfig
from data_prep.decontamination.choice import ChosenSets, required_sets
from data_prep.decontamination.index import build_index
from data_prep.reading_config import ReadingConfig
from data_prep.sources.plan import plan_units
from data_prep.sources.units import WorkUnit


def input_signature(config: PrepConfig) -> str:
    """Changes when what the sources or the required evaluation sets hold may have changed, or the programs that decide
    what is kept. Sets that are not required have no say: `data_prep.decontamination.choice`.

    Reads no file's content but the beginnings of tables. UserError when a source is missing, offers nothing or lacks
    a column that the user names.
    """
    return Inputs.of(config).signature


@dataclass(frozen=True)
class Inputs:
    """What prep reads from outside: the sources, cut into units of work, and the index of the evaluation sets that are
    required (None where there are none)."""

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
        """The index of all sets that are kept out; None where there are none."""
        is_more = any(digest is not None for digest in chosen.digests.values())
        return build_index(chosen.config) if is_more else self.index
