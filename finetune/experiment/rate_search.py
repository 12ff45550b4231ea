"""The search over learning rates of one job: every rate has the same steps, the best on the validation split is kept.

Each rate trains in its own folder below the job's. At the end the journal and best weights of the kept rate are copied
to where a job without a search has them, and `learning_rates.json` lists the rates that were tried.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME
from cluster.storage import read_document, write_bytes, write_document
from finetune.training.best_weights import BEST_NAME, Best
from finetune.training.config import rate_name
from finetune.training.finetuner import Diverged, FitEnd
from pretrain.agreement import agreed

_NAME = "learning_rates.json"


@dataclass(frozen=True)
class RateTrial:
    """One learning rate; `valid` is its best headline metric on the validation split, None if training diverged."""

    learning_rate: float
    valid: float | None
    best_step: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Trained:
    """The end of a job's training, its learning rate, and the rates that were tried (none without a search)."""

    end: FitEnd
    learning_rate: float
    tried: tuple[RateTrial, ...] = ()

    def journal_folder(self, job: Path) -> Path:
        """Return the folder of the journal of the kept training."""
        return job / rate_name(self.learning_rate) if self.tried else job

    def result_values(self) -> dict[str, Any]:
        """Return the learning rates for the job's result.json."""
        tried = {"learning_rates_tried": [asdict(one) for one in self.tried]} if self.tried else {}
        return {"learning_rate": self.learning_rate, **tried}


def best_of(tried: Sequence[RateTrial]) -> RateTrial:
    """Return the trial to keep, the first of equals. Raises UserError if every rate diverged."""
    usable = [(one.valid, one) for one in tried if one.valid is not None]
    if not usable:
        rates = ", ".join(f"{one.learning_rate:g}" for one in tried)
        raise UserError(
            f"training diverged at every one of training.learning_rates ({rates}): use lower ones"
        )
    return max(usable, key=lambda both: both[0])[1]


def search(folder: Path, rates: Sequence[float], train: Callable[[float, Path], FitEnd]) -> Trained:
    """Train with every rate by `train(rate, its folder)`, which resumes the training of a killed search.

    Collective; the first worker writes. Ends early if a training is stopped. Raises UserError if all diverge.
    """
    tried = agreed(lambda: _finished(folder))
    if tried is None:
        tried = []
        for rate in rates:
            try:
                end = train(rate, folder / rate_name(rate))
            except Diverged:
                tried.append(RateTrial(rate, None))
                continue
            if end.stopped:
                return Trained(end, rate)
            best = end.best
            tried.append(RateTrial(rate, best.metric if best else None, best.step if best else 0, end.steps))
        agreed(lambda: _finish(folder, tried))
    kept = best_of(tried)
    assert kept.valid is not None
    end = FitEnd(kept.steps, Best(kept.best_step, kept.valid), stopped=False)
    return Trained(end, kept.learning_rate, tuple(tried))


def _finished(folder: Path) -> list[RateTrial] | None:
    """Return the trials of a finished search, after removing files that a kill at its end left."""
    path = folder / _NAME
    if not path.is_file():
        return None
    tried = [RateTrial(**one) for one in read_document(path)["tried"]]
    _remove_what_made_it(folder, tried)
    return tried


def _finish(folder: Path, tried: Sequence[RateTrial]) -> None:
    """Write the list of trials last, then remove the files of the training; the journals of all rates are kept."""
    kept = folder / rate_name(best_of(tried).learning_rate)
    for name in (JOURNAL_NAME, BEST_NAME):
        write_bytes(folder / name, (kept / name).read_bytes())
    write_document(folder / _NAME, {"tried": [asdict(one) for one in tried]})
    _remove_what_made_it(folder, tried)


def _remove_what_made_it(folder: Path, tried: Sequence[RateTrial]) -> None:
    for one in tried:
        place = folder / rate_name(one.learning_rate)
        shutil.rmtree(place / "checkpoints", ignore_errors=True)
        (place / BEST_NAME).unlink(missing_ok=True)
