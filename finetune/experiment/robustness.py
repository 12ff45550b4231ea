"""How much a system loses when the test code is changed in ways that do not change what it does.

After Li et al., "A Closer Look into Transformer-Based Code Intelligence Through Code Transformation", 2022. A change is
judged on the items it could change, before and after, by the headline metric; never on other items.

Shapes: Q queries, C candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from cluster.config import Config
from finetune.examples import Code, Labelled, Pair, Pool
from finetune.experiment.exams import Exam, LabellingExam, PredictingExam, RankingExam, WritingExam
from finetune.metrics.intervals import compare
from finetune.metrics.measured import Measured
from finetune.systems.base import Labeller, OnProgress, Predictor, Ranker, System, Writer
from finetune.transforms.items import transformed_items
from finetune.transforms.registry import transform

WatchOf = Callable[[str, int], OnProgress]
"""Given what is judged ("after rename") and of how many items, what hears of every item that is done."""
TransformKind = Literal["rename", "dead_code", "permute", "for_to_while", "swap_branches"]


class RobustnessConfig(Config):
    """Which changes are tried on the code of the test split: what is read, found or labelled."""

    transforms: tuple[TransformKind, ...] = ()
    language: Literal["java", "python"] = "python"
    """Of that code."""


def robustness_of(
    config: RobustnessConfig,
    exam: Exam,
    system: System,
    seed: int,
    threshold: float | None = None,
    watch: WatchOf = lambda what, num_items: lambda num_done: None,
) -> dict[str, dict[str, float]]:
    """By transform: on how many items, the headline metric before and after, and the difference with its interval.

    Transforms that change nothing are left out. Labels are given by `threshold`, as on the unchanged items.
    """
    changes = _Changes(exam, system, config.language, seed, threshold, watch)
    found: dict[str, dict[str, float]] = {}
    for kind in config.transforms:
        both = changes.before_and_after(kind)
        if both is None:
            continue
        before, after = both
        compared = compare(after, before, seed)
        found[kind] = {
            "num_items": float(before.num_items),
            "before": before.value,
            "after": after.value,
            "difference": compared.difference,
            "low": compared.low,
            "high": compared.high,
            "p_value": compared.p_value,
        }
    return found


@dataclass(frozen=True)
class _Changes:
    """What stays the same from one transform to the next."""

    exam: Exam
    system: System
    language: str
    seed: int
    threshold: float | None
    watch: WatchOf

    def before_and_after(self, kind: str) -> tuple[Measured, Measured] | None:
        """None where the transform changes nothing."""
        if isinstance(self.exam, WritingExam):
            return self._written(self.exam, cast(Writer, self.system), kind)
        if isinstance(self.exam, RankingExam):
            return self._ranked(self.exam, cast(Ranker, self.system), kind)
        if isinstance(self.exam, PredictingExam):
            return self._predicted(self.exam, cast(Predictor, self.system), kind)
        assert isinstance(self.exam, LabellingExam)
        return self._labelled(self.exam, cast(Labeller, self.system), kind)

    def _written(self, exam: WritingExam, system: Writer, kind: str) -> tuple[Measured, Measured] | None:
        changed = transformed_items(exam.test_items, kind, self.language, self.seed)
        if not changed.before:
            return None

        def measured(items: Sequence[Pair], which: str) -> Measured:
            watch = self.watch(f"{which} {kind}", len(items))
            return exam.task.quick(items, system.write([(one.source, one.suffix) for one in items], watch))

        return measured(changed.before, "before"), measured(changed.after, "after")

    def _ranked(self, exam: RankingExam, system: Ranker, kind: str) -> tuple[Measured, Measured] | None:
        """Queries of which something they should find is changed, before and after all candidates are."""
        pool = exam.test_pool
        changed_C = [transform(kind, code, self.language, self.seed) for code in pool.candidates]
        touched = [
            number
            for number, relevant in enumerate(pool.relevant)
            if any(changed_C[one] is not None for one in relevant)
        ]
        if not touched:
            return None
        after_C = [old if new is None else new for old, new in zip(pool.candidates, changed_C, strict=True)]

        def measured(part: Pool, which: str) -> Measured:
            watch = self.watch(f"{which} {kind}", len(part.queries))
            return exam.task.judge(part, system.scores(part.queries, part.candidates, watch))[0]

        before = pool.of_queries(touched)
        return measured(before, "before"), measured(replace(before, candidates=after_C), "after")

    def _labelled(self, exam: LabellingExam, system: Labeller, kind: str) -> tuple[Measured, Measured] | None:
        both = []
        for one in exam.test_items:
            changed = [transform(kind, text, self.language, self.seed) for text in one.texts]
            if any(text is not None for text in changed):
                texts = tuple(new or old for old, new in zip(one.texts, changed, strict=True))
                both.append((one, replace(one, texts=texts)))
        if not both:
            return None

        def measured(items: Sequence[Labelled], which: str) -> Measured:
            watch = self.watch(f"{which} {kind}", len(items))
            found_NC = system.probabilities([one.texts for one in items], watch)
            return exam.task.judge(items, found_NC, self.threshold)[0]

        return measured([old for old, _ in both], "before"), measured([new for _, new in both], "after")

    def _predicted(
        self, exam: PredictingExam, system: Predictor, kind: str
    ) -> tuple[Measured, Measured] | None:
        """Parts of files hardly ever parse by themselves, and what does not parse is not changed."""
        if not exam.task.is_source:
            return None
        before, after = [], []
        for one in exam.test_items:
            text = transform(kind, one.text, self.language, self.seed)
            if text is not None and (changed := exam.task.code(one.key, text)).lexemes:
                before.append(one)
                after.append(changed)
        if not before:
            return None

        def measured(items: Sequence[Code], which: str) -> Measured:
            return exam.task.judge(items, system.ranks(items, self.watch(f"{which} {kind}", len(items))))[0]

        return measured(before, "before"), measured(after, "after")


def robustness_rows(summary: Any) -> list[tuple[str, dict[str, dict[str, float]]]]:
    """(system, by transform) of an experiment's summary, for tables; [] where nothing was tried."""
    return [
        (name, found["robustness"]) for name, found in summary["systems"].items() if found.get("robustness")
    ]
