"""The overlap of a task's test items with the text that the base model was pretrained on."""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import UserError
from cluster.reporter import Reporter
from cluster.storage import fingerprint, read_document, write_document
from data_prep.finished.prepared import open_prepared
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.results import overlap_text
from finetune.languages import grammar_name
from finetune.metrics.measured import Measured
from finetune.modalities.base import Source
from finetune.modalities.labelling import Labelled
from finetune.modalities.predicting import Code
from finetune.modalities.ranking import Pool
from finetune.modalities.writing import Pair
from finetune.tasks.generation import GenerationConfig
from finetune.tasks.humaneval import HumanEvalConfig
from finetune.tasks.line_completion import LineCompletionConfig
from finetune.tasks.repair import RepairConfig
from finetune.tasks.token_completion import TokenCompletionConfig

_NAME = "overlap.json"
_VERSION = 2
"""The version of the counts: 2 counts n-grams that many texts share."""
_WORK_NAME = ".overlap"
_SUFFIX = "_unseen"
_REWRITTEN = "its texts differ from the published ones: names or literals in them were replaced"
_MOST_REWRITTEN = 0.9
"""The share from which the whole set counts as rewritten: some texts are so short that nothing in them was replaced."""
_UNREADABLE = "the pretraining corpus cannot be read"

_ABSTRACT_NAME = re.compile(r"\b(?:TYPE|METHOD|VAR|STRING|INT|FLOAT|CHAR)_\d+\b")
_LEFT_OUT_LITERAL = re.compile(r"<(?:STR|NUM|CHAR)_LIT>")
_CONCODE = re.compile(r"\bfunction \(|\b(?:arg|loc)\d+\b|\bconcode_(?:field|elem)_sep\b")


@dataclass(frozen=True)
class SearchedText:
    """A text of the test split, its role ("sources", "answers"), and the items that overlap if it is found."""

    role: str
    text: str
    items: tuple[int, ...] = ()


@dataclass(frozen=True)
class Overlap:
    """The overlap of the test items with the corpora, or the reason why it is unknown.

    `facts` are counts for people and for the experiment's result.json; `items` are the numbers of the test items that
    have a text verbatim in the corpus. If the overlap is not known, `unknown` gives the reason and both are empty.
    """

    facts: dict[str, Any] | None
    items: frozenset[int]
    unknown: str = ""


def overlap_of(
    config: ExperimentConfig, prep: Path | None, corpora: Sequence[str], folder: Path, reporter: Reporter
) -> Overlap | None:
    """Return the overlap with the prepared corpora at `corpora`, those the base was pretrained on.

    None if the test items come from the corpus, whose held-out repositories were split off before pretraining, or if
    the base's pretraining corpora are not known. `Overlap.unknown` is set if the texts were rewritten before they were
    published and, with a warning, if the corpora cannot be read. The result is cached in `folder` and stays valid after
    the corpora are deleted. Needs an open Ray session.
    """
    task, path = config.task.build(), folder / _NAME
    if not (task.files() or isinstance(config.task, HumanEvalConfig)) or not (corpora or path.is_file()):
        return None
    data = task.load(Source(prep, config.seed))
    texts = list(searched_texts(data.test, data.published))
    kept = _kept(path)
    wanted: dict[str, Any] = {
        "version": _VERSION,
        "texts": fingerprint([(one.role, one.text, one.items) for one in texts]),
    }
    if corpora:
        wanted["corpora"] = list(corpora)
    known = Overlap(kept["facts"], frozenset(kept["items"])) if _is_part(wanted, kept) else None
    if not corpora:
        return known
    pattern = _rewritten_by(config.task)
    is_rewritten = [pattern is not None and bool(pattern.search(one.text)) for one in texts]
    if sum(is_rewritten) >= _MOST_REWRITTEN * len(texts):
        return Overlap(None, frozenset(), _REWRITTEN)
    try:
        wanted["manifests"] = [open_prepared(location).manifest_sha256 for location in corpora]
        if known is not None and _is_part(wanted, kept):
            return known
        found = _searched(texts, is_rewritten, corpora, folder.absolute() / _WORK_NAME, reporter)
    except UserError as error:
        if known is not None and "manifests" not in wanted:
            return known
        reporter.warn(f"{config.task.kind}: what the base has seen of the test split is not known: {error}")
        return Overlap(None, frozenset(), _UNREADABLE)
    assert found.facts is not None
    facts = found.facts | {"items": _num_items(data.test), "items_verbatim": len(found.items)}
    write_document(path, wanted | {"facts": facts, "items": sorted(found.items)})
    shutil.rmtree(folder / _WORK_NAME, ignore_errors=True)
    if any(counts["verbatim"] for counts in facts["texts"].values()):
        reporter.warn(
            f"{config.task.kind}: texts of the test split that occur verbatim in the pretraining corpus: "
            f"{overlap_text(facts)}; prep.decontamination.sets keeps a set out (docs/data_prep.md)"
        )
    return replace(found, facts=facts)


def searched_texts(
    test: Pool | Sequence[Any], published: Mapping[str, Sequence[str]] | None = None
) -> Iterator[SearchedText]:
    """Yield each distinct text of each role as the task's files contain it, with all items that it became part of.

    `published` is as in `TaskData`. If the task made several published texts the same, its item has all of them.
    """
    found: dict[tuple[str, str], set[int]] = {}
    for role, made, items in _pool_texts(test) if isinstance(test, Pool) else _item_texts(test):
        for text in (published or {}).get(made, (made,)):
            found.setdefault((role, text), set()).update(items)
    for (role, text), numbers in found.items():
        yield SearchedText(role, text, tuple(sorted(numbers)))


def on_unseen(headline: Measured, overlapping: frozenset[int], num_items: int) -> list[Measured]:
    """Return the headline metric without the overlapping test items.

    [] if no item or every item overlaps, or if the metric does not have one value per test item.
    """
    if headline.num_items != num_items or len(overlapping) in (0, num_items):
        return []
    kept = [number for number in range(num_items) if number not in overlapping]
    statistics_NS = headline.statistics_NS[kept]
    return [replace(headline, name=headline.name + _SUFFIX, statistics_NS=statistics_NS)]


def _kept(path: Path) -> dict[str, Any]:
    """Return the result of an earlier search; {} if there was none or its file is damaged."""
    try:
        return read_document(path) if path.is_file() else {}
    except UserError:
        return {}


def _is_part(wanted: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    return all(kept.get(name) == value for name, value in wanted.items())


def _rewritten_by(task: Any) -> re.Pattern[str] | None:
    """Return a pattern that only rewritten texts of the task's files match: no other file contains such a text."""
    match task:
        case RepairConfig():
            return _ABSTRACT_NAME
        case LineCompletionConfig() | TokenCompletionConfig():
            return _LEFT_OUT_LITERAL
        case GenerationConfig() if grammar_name(task.language) == "java":
            return _CONCODE
        case _:
            return None


def _searched(
    texts: Sequence[SearchedText],
    is_rewritten: Sequence[bool],
    corpora: Sequence[str],
    folder: Path,
    reporter: Reporter,
) -> Overlap:
    from data_prep.decontamination.search import search_corpora

    found = search_corpora([one.text for one in texts], corpora, folder, reporter)
    counts: dict[str, dict[str, int]] = {}
    items: set[int] = set()
    for one, rewritten, share in zip(texts, is_rewritten, found.share_T, strict=True):
        of_role = counts.setdefault(
            one.role, {"texts": 0, "too_short": 0, "rewritten": 0, "verbatim": 0, "half": 0}
        )
        of_role["texts"] += 1
        of_role["too_short"] += bool(np.isnan(share))
        of_role["rewritten"] += bool(rewritten and share < 1)
        of_role["verbatim"] += bool(share == 1)
        of_role["half"] += bool(share > 0)
        if share == 1:
            items.update(one.items)
    return Overlap({"texts": counts, "searched_share": found.searched_share}, frozenset(items))


def _pool_texts(pool: Pool) -> Iterator[tuple[str, str, Iterable[int]]]:
    for number, query in enumerate(pool.queries):
        yield "queries", query, (number,)
    for text in pool.candidates:
        yield "candidates", text, ()
    for number, relevant in enumerate(pool.relevant):
        for candidate in relevant:
            yield "answers", pool.candidates[candidate], (number,)


def _item_texts(items: Sequence[Any]) -> Iterator[tuple[str, str, Iterable[int]]]:
    for number, item in enumerate(items):
        match item:
            case Pair():
                yield "sources", item.source, (number,)
                for reference in item.references:
                    yield "targets", reference, (number,)
            case Labelled():
                for text in item.texts:
                    yield "texts", text, (number,)
            case Code():
                yield "texts", item.text, (number,)


def _num_items(test: Pool | Sequence[Any]) -> int:
    return len(test.queries) if isinstance(test, Pool) else len(test)
