"""The steps that made the model, out of all that the journal tells of.

A start goes back to the commit it names, a rewind to its target: steps behind that are not part of what the model has
learnt, and are made again. What is left is one line of steps from 1 on.

A run may go on with another corpus or mixture, where that is accepted. What it read before then cannot be held against
what is read now.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cluster.journal import JournalRecord


@dataclass(frozen=True)
class LedgerStep:
    """One optimizer step: the data step it consumed and the sum of what it read."""

    step: int
    cursor: int
    digest: int
    applied: bool
    loss: float


@dataclass
class Lineage:
    """What a journal says of a run's data."""

    steps: dict[int, LedgerStep] = field(default_factory=dict)
    """By number, in order."""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    """Half-open ranges of data steps that rewinds pass over."""
    commits: dict[int, int] = field(default_factory=dict)
    """Cursor of every commit made in this line, by step."""
    num_attempts: int = 0
    num_remade: int = 0
    """Steps that a kill or a rewind threw away."""
    problems: list[str] = field(default_factory=list)
    """What does not fit together."""
    comparable_from_step: int = 0
    """All steps from this one on read the newest corpus."""
    _corpus: str | None = None
    """Fingerprint of the newest one."""
    _earlier: dict[int, LedgerStep] = field(default_factory=dict)
    """Thrown away by a kill: made again, they must read the same."""

    @property
    def last_step(self) -> int:
        """0 before the first."""
        return next(reversed(self.steps), 0)

    @property
    def comparable_steps(self) -> list[int]:
        """Those that read the newest corpus."""
        return [step for step in self.steps if step >= self.comparable_from_step]

    def take(self, record: JournalRecord) -> None:
        """The next record of the journal."""
        facts = record.facts
        if record.kind == "step" and record.step is not None and "cursor" in facts:
            metrics = record.metrics
            self._step(
                LedgerStep(record.step, facts["cursor"], facts["digest"], facts["applied"], metrics["loss"])
            )
        elif record.name == "start":
            self._start(facts)
        elif record.name == "rewind":
            self._go_back(facts["to_step"])
            # After a rewind the same step reads other data.
            self._earlier.clear()
            self.skipped.append((facts["skipped_from_cursor"], facts["skipped_to_cursor"]))
        elif record.name == "commit":
            self.commits[facts["step"]] = facts["cursor"]

    def _start(self, facts: dict[str, Any]) -> None:
        self.num_attempts += 1
        if facts["step"] > self.last_step:
            self.problems.append(
                f"attempt {facts['attempt']} starts after step {facts['step']}, "
                f"but the journal knows steps up to {self.last_step} only"
            )
        self._go_back(facts["step"])
        self._see_corpus(facts["step"], facts.get("corpus"))

    def _see_corpus(self, step: int, corpus: str | None) -> None:
        """What follows `step` may read other tokens than before: of another corpus, or of the newest at last."""
        is_changed = self._corpus is not None and corpus != self._corpus
        if is_changed or step + 1 < self.comparable_from_step:
            self.comparable_from_step = step + 1
            self._earlier.clear()
        self._corpus = corpus

    def _go_back(self, to_step: int) -> None:
        for step in [step for step in self.steps if step > to_step]:
            self._earlier[step] = self.steps.pop(step)
            self.num_remade += 1
        self.commits = {step: cursor for step, cursor in self.commits.items() if step <= to_step}

    def _step(self, made: LedgerStep) -> None:
        if made.step != self.last_step + 1:
            self.problems.append(f"step {made.step} follows step {self.last_step}")
        earlier = self._earlier.pop(made.step, None)
        if earlier is not None and (earlier.cursor, earlier.digest) != (made.cursor, made.digest):
            self.problems.append(f"step {made.step} read other tokens when it was made again after a kill")
        self.steps[made.step] = made


def lineage_of(records: Iterable[JournalRecord]) -> Lineage:
    """The line of steps that a journal tells of."""
    lineage = Lineage()
    for record in records:
        lineage.take(record)
    return lineage
