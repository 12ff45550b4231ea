"""The two finetune stages: each arm and the baseline as Ray tasks, journals followed into progress bars.

An arm whose `result.json` is there is not run again; one that was killed starts over and repeats its steps
exactly. Both functions need an open Ray session and return the stage's summary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cluster.follow import followed
from cluster.journal import JOURNAL_NAME, JournalRecord
from cluster.ray_session import FileTask, run_file_tasks
from cluster.reporter import Bar, Reporter
from cluster.storage import read_json
from finetune.config import CompletionConfig, SearchConfig

ARMS = ("pretrained", "scratch")


def run_completion(
    config: CompletionConfig,
    seed: int,
    prep_folder: Path,
    pretrain_folder: Path,
    folder: Path,
    reporter: Reporter,
) -> dict[str, Any]:
    """Next code token with and without the pretrained weights, and by counting; figures are shares."""
    from finetune.arms import completion_arm, completion_baseline

    inputs = (config, seed, prep_folder, pretrain_folder)
    _run_arms("completion", completion_arm, inputs, config.training.steps, folder, reporter)
    _run_baseline("completion", completion_baseline, inputs[:3], folder)
    results = _results(folder)
    summary = {
        **{arm: results[arm] for arm in ARMS},
        "baseline_bigram_accuracy": results["baseline"]["accuracy"],
        "baseline_bigram_mrr": results["baseline"]["mrr"],
        "gain": results["pretrained"]["accuracy"] - results["scratch"]["accuracy"],
    }
    reporter.line(
        f"completion: accuracy {results['pretrained']['accuracy']:.3f} pretrained, "
        f"{results['scratch']['accuracy']:.3f} from scratch, {results['baseline']['accuracy']:.3f} bigram; "
        f"{results['pretrained']['num_lexemes']:,} code tokens"
    )
    return summary


def run_search(
    config: SearchConfig,
    seed: int,
    prep_folder: Path,
    pretrain_folder: Path,
    folder: Path,
    reporter: Reporter,
) -> dict[str, Any]:
    """Docstring to function with and without the pretrained weights, and by TF-IDF; figures are MRR."""
    from finetune.arms import search_arm, search_baseline

    inputs = (config, seed, prep_folder, pretrain_folder)
    _run_arms("search", search_arm, inputs, config.training.steps, folder, reporter)
    _run_baseline("search", search_baseline, inputs[:3], folder)
    results = _results(folder)
    summary = {
        **{arm: results[arm] for arm in ARMS},
        "tfidf_mrr": results["baseline"]["mrr"],
        "num_candidates": results["pretrained"]["num_candidates"],
        "gain": results["pretrained"]["mrr"] - results["scratch"]["mrr"],
    }
    if summary["num_candidates"] < config.num_candidates:
        reporter.warn(
            f"search: the test split has only {summary['num_candidates']} documented functions: "
            f"that many candidates per query, not {config.num_candidates}"
        )
    reporter.line(
        f"search: MRR {results['pretrained']['mrr']:.3f} pretrained, "
        f"{results['scratch']['mrr']:.3f} from scratch, {results['baseline']['mrr']:.3f} TF-IDF; "
        f"{results['pretrained']['num_queries']:,} queries, {summary['num_candidates']} candidates each"
    )
    return summary


def _run_arms(
    task: str,
    function: Callable[..., None],
    inputs: tuple[Any, int, Path, Path],
    num_steps: int,
    folder: Path,
    reporter: Reporter,
) -> None:
    config, seed, prep_folder, pretrain_folder = inputs
    arguments = {arm: (config, seed, arm, prep_folder, pretrain_folder) for arm in ARMS}
    tasks = [FileTask(f"{task} {arm}", _result_path(folder, arm), arguments[arm]) for arm in ARMS]
    unfinished = [one for one in tasks if not one.output.exists()]
    with _shown(unfinished, num_steps, reporter):
        run_file_tasks(function, tasks, lambda _: None)


def _run_baseline(task: str, function: Callable[..., None], arguments: tuple[Any, ...], folder: Path) -> None:
    baseline = FileTask(f"{task} baseline", _result_path(folder, "baseline"), arguments)
    run_file_tasks(function, [baseline], lambda _: None)


def _result_path(folder: Path, part: str) -> Path:
    return folder / part / "result.json"


def _results(folder: Path) -> dict[str, Any]:
    return {part: read_json(_result_path(folder, part)) for part in (*ARMS, "baseline")}


@contextmanager
def _shown(tasks: Sequence[FileTask], num_steps: int, reporter: Reporter) -> Iterator[None]:
    """A bar per task that follows its journal while the block runs."""
    with ExitStack() as stack:
        for task in tasks:
            bar = stack.enter_context(reporter.bar(task.name, num_steps, "steps"))
            stack.enter_context(followed(task.output.with_name(JOURNAL_NAME), partial(_show, bar, num_steps)))
        yield


def _show(bar: Bar, num_steps: int, record: JournalRecord) -> None:
    if record.step is not None and "loss" in record.metrics:
        bar.update(record.step, f"loss {record.metrics['loss']:.2f}")
    elif record.kind == "event":  # the only one an arm writes: its training is over
        bar.update(num_steps, record.text)
