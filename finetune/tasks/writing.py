"""Shared code of the writing tasks: loading of splits, marking of leaked items, checks of references, metrics."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cluster.errors import UserError
from finetune.formats.pair_files import PairSource, Split
from finetune.metrics.codebleu import CODEBLEU_LANGUAGES, codebleu
from finetune.metrics.measured import Measured
from finetune.modalities.writing import Pair, WritingData
from finetune.tasks.splits import drawn, held_out

Metric = Callable[[Sequence[Sequence[str]], Sequence[str]], Measured]


def load_pair_files(files: PairSource, language: str | None, seed: int) -> WritingData:
    """Load the splits of the files; training items without a source or a target are skipped and counted.

    Raise UserError if a file cannot be used, or an item of valid or test has no target.
    """
    facts: dict[str, float] = {}
    splits = {split: _read_split(files, split, language, facts) for split in ("train", "valid", "test")}
    train, valid = splits["train"], splits["valid"]
    if files.valid is None:
        train, valid = hold_out(train, seed)
    return finish(train, valid, splits["test"], files, facts, seed)


def finish(
    train: Sequence[Pair],
    valid: Sequence[Pair],
    test: Sequence[Pair],
    files: PairSource,
    facts: dict[str, float],
    seed: int,
) -> WritingData:
    """Mark leaked test items by the whole training split, then sample each split down to its configured size."""
    learnt = {pair.references[0] for pair in train}
    read = {pair.source for pair in train}
    test = [replace(pair, leaked=not learnt.isdisjoint(pair.references)) for pair in test]
    if train:
        facts["test_targets_in_train"] = sum(pair.leaked for pair in test)
        facts["test_sources_in_train"] = sum(pair.source in read for pair in test)
    return WritingData(
        train=drawn(train, files.max_train, seed, "train"),
        valid=drawn(valid, files.max_valid, seed, "valid"),
        test=drawn(test, files.max_test, seed, "test"),
        facts=facts,
    )


def hold_out(train: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Hold pairs out as `held_out` does, but hold out a single pair too."""
    return held_out(train, seed) if len(train) > 1 else ([], list(train))


def references(items: Sequence[Pair]) -> list[Sequence[str]]:
    """Return the references of every item.

    Raise UserError if there is no item, or all references of one are empty, as with withheld labels.
    """
    if not items:
        raise UserError("there is no item to evaluate: the test split is empty")
    empty = [item.key for item in items if not any(text.strip() for text in item.references)]
    if empty:
        raise UserError(
            f"{len(empty)} of {len(items)} items (first {empty[0]}) have an empty target, so nothing can be evaluated: "
            "its labels are withheld, or the target is another field; use a split that has them"
        )
    return [item.references for item in items]


def evaluate_code(
    metrics: Sequence[Metric], items: Sequence[Pair], written: Sequence[str], language: str
) -> list[Measured]:
    """Return the metrics, the headline first, and CodeBLEU; then the metrics again without leaked items."""
    wanted = references(items)
    measured = [metric(wanted, written) for metric in metrics]
    return measured + with_codebleu(items, written, language) + on_the_rest(metrics, items, written)


def on_the_rest(
    metrics: Iterable[Metric], items: Sequence[Pair], written: Sequence[str], suffix: str = "_unleaked"
) -> list[Measured]:
    """Return the metrics without leaked items; [] if no item or every item is leaked."""
    kept = [number for number, item in enumerate(items) if not item.leaked]
    if len(kept) in (0, len(items)):
        return []
    rest = references([items[number] for number in kept])
    texts = [written[number] for number in kept]
    measured = [metric(rest, texts) for metric in metrics]
    return [replace(one, name=one.name + suffix) for one in measured]


def with_codebleu(items: Sequence[Pair], written: Sequence[str], language: str) -> list[Measured]:
    """Return CodeBLEU of all items; [] if it does not support the language."""
    return [codebleu(references(items), written, language)] if language in CODEBLEU_LANGUAGES else []


def _read_split(files: PairSource, split: Split, language: str | None, facts: dict[str, float]) -> list[Pair]:
    pairs = [
        Pair(f"{split}-{number}", source, (target,), language=language)
        for number, (source, target) in enumerate(files.read(split), start=1)
    ]
    if split == "train":
        usable = [pair for pair in pairs if pair.source and pair.references[0]]
        facts["train_left_out_empty"] = len(pairs) - len(usable)
        if pairs and not usable:
            raise UserError(f"{files.paths(split)[0]}: every item has an empty source or target")
        return usable
    if pairs:
        try:
            references(pairs)
        except UserError as error:
            raise UserError(f"{files.paths(split)[-1]}: {error}") from None
    return pairs
