"""How much a system loses when the test code is changed in ways that do not change what it does.

After Li et al., "A Closer Look into Transformer-Based Code Intelligence Through Code Transformation", 2022. A change is
judged on the items it could change, before and after, by the headline metric; never on other items.

Shapes: Q queries, C candidates.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from cluster.config import Config
from finetune.examples import Labelled, Pair, Pool
from finetune.experiment.exams import Exam, LabellingExam, RankingExam, WritingExam
from finetune.metrics.intervals import compare
from finetune.metrics.measured import Measured
from finetune.systems.base import Labeller, Ranker, System, Writer
from finetune.transforms.items import transformed_items
from finetune.transforms.registry import transform

TransformKind = Literal["rename", "dead_code", "permute", "for_to_while", "swap_branches"]


class RobustnessConfig(Config):
    """Which changes are tried on the code of the test split: what is read, found or labelled."""

    transforms: tuple[TransformKind, ...] = ()
    language: Literal["java", "python"] = "python"
    """Of that code."""


def robustness_of(
    config: RobustnessConfig, exam: Exam, system: System, seed: int
) -> dict[str, dict[str, float]]:
    """By transform: on how many items, the headline metric before and after, and the difference with its interval.

    Transforms that change nothing are left out.
    """
    found: dict[str, dict[str, float]] = {}
    for kind in config.transforms:
        both = _before_and_after(exam, system, kind, config.language, seed)
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


def _before_and_after(
    exam: Exam, system: System, kind: str, language: str, seed: int
) -> tuple[Measured, Measured] | None:
    if isinstance(exam, WritingExam):
        return _written(exam, cast(Writer, system), kind, language, seed)
    if isinstance(exam, RankingExam):
        return _ranked(exam, cast(Ranker, system), kind, language, seed)
    assert isinstance(exam, LabellingExam)
    return _labelled(exam, cast(Labeller, system), kind, language, seed)


def _written(
    exam: WritingExam, system: Writer, kind: str, language: str, seed: int
) -> tuple[Measured, Measured] | None:
    changed = transformed_items(exam.test_items, kind, language, seed)
    if not changed.before:
        return None

    def measured(items: Sequence[Pair]) -> Measured:
        written = system.write([(one.source, one.suffix) for one in items], lambda _: None)
        return exam.task.quick(items, written)

    return measured(changed.before), measured(changed.after)


def _ranked(
    exam: RankingExam, system: Ranker, kind: str, language: str, seed: int
) -> tuple[Measured, Measured] | None:
    """Queries of which something they should find is changed, before and after all candidates are."""
    pool = exam.test_pool
    changed_C = [transform(kind, code, language, seed) for code in pool.candidates]
    touched = [
        number
        for number, relevant in enumerate(pool.relevant)
        if any(changed_C[one] is not None for one in relevant)
    ]
    if not touched:
        return None
    after_C = [old if new is None else new for old, new in zip(pool.candidates, changed_C, strict=True)]

    def measured(part: Pool) -> Measured:
        score_QC = system.scores(part.queries, part.candidates, lambda _: None)
        return exam.task.judge(part, score_QC)[0]

    before = pool.of_queries(touched)
    return measured(before), measured(replace(before, candidates=after_C))


def _labelled(
    exam: LabellingExam, system: Labeller, kind: str, language: str, seed: int
) -> tuple[Measured, Measured] | None:
    both = []
    for one in exam.test_items:
        changed = [transform(kind, text, language, seed) for text in one.texts]
        if any(text is not None for text in changed):
            texts = tuple(new or old for old, new in zip(one.texts, changed, strict=True))
            both.append((one, replace(one, texts=texts)))
    if not both:
        return None

    def measured(items: Sequence[Labelled]) -> Measured:
        found_NC = system.probabilities([one.texts for one in items], lambda _: None)
        return exam.task.judge(items, found_NC)[0]

    return measured([before for before, _ in both]), measured([after for _, after in both])


def robustness_rows(summary: Any) -> list[tuple[str, dict[str, dict[str, float]]]]:
    """(system, by transform) of an experiment's summary, for tables; [] where nothing was tried."""
    return [
        (name, found["robustness"]) for name, found in summary["systems"].items() if found.get("robustness")
    ]
