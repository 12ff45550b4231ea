"""Runs the stage graph in an output folder: skips what is finished, resumes what was begun, runs the rest."""

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cluster import run_state, structured_log
from cluster.errors import UnfinishedError, UserError
from cluster.nodes import check_cluster
from cluster.ray_session import ray_session
from cluster.reporter import Reporter, duration_text
from cluster.resources import ResourcesConfig
from cluster.storage import write_bytes
from cluster.watch import interrupt_on_sigterm
from data_prep.sources.config import local_paths
from pipeline.folder.accepted_changes import parse_config, refuse_to_restart_training, rename_stage_folder
from pipeline.folder.config import RunConfig
from pipeline.folder.graph import (
    PlannedStage,
    Stage,
    StageContext,
    ancestors,
    plan,
    refuse_damage,
    stage_folders,
)
from pipeline.folder.layout import RunFiles
from pipeline.folder.run_folder import (
    check_owner,
    remove_leftovers,
    restore_config,
    working_folder,
)
from pipeline.folder.sections import PlaceConfig
from pipeline.folder.stage_record import StageRecord, hash_outputs, read_record, write_record
from pipeline.mlflow.check import check_store, seal_store
from pipeline.mlflow.run_logger import MlflowLogger, is_logged, open_mlflow, status_of
from pipeline.mlflow.store import store_uri
from pipeline.report.summary import summary_lines
from pipeline.run.stages import build_stages
from pretrain.checkpoint.compatibility import check_newest
from pretrain.files import PretrainFiles


def run_pipeline(
    config: RunConfig,
    out: Path,
    targets: Sequence[str],
    make_reporter: Callable[[Path], Reporter],
    accepted: frozenset[str] = frozenset(),
) -> None:
    """Run the stages `targets` and all that they need in `out`, then print a summary.

    `make_reporter` is called with the path of the log once the folder is locked. `accepted` are changed settings, see
    `pipeline.folder.accepted_changes`. Raises UserError for anything the user can fix; a folder that was empty before
    is then removed again.
    """

    def keep_training(theirs: Mapping[str, Any]) -> None:
        if accepted:
            before = ancestors(build_stages(parse_config(theirs, RunConfig)), "pretrain")
            now = ancestors(build_stages(config), "pretrain")
            for folder in {stage_folders(stages, out)["pretrain"] for stages in (before, now)}:
                check_newest(folder / PretrainFiles.CHECKPOINTS, config.pretrain, config.seed, accepted)
            rename_stage_folder(out, before, now)

    all_stages = build_stages(config, accepted)
    restore_config(out, config.model_dump(mode="json"), lambda: folder_names(all_stages, out))
    stages = needed_stages(all_stages, targets)
    _register(config, out, run_stages(stages, config, out, make_reporter, accepted, keep_training))
    seal_store(out, store_uri(out, config.tracking.store))


def _register(config: RunConfig, out: Path, steps: Sequence[PlannedStage]) -> None:
    """Register the best system of every task among the finished `steps`."""
    from pipeline.mlflow.champion import register_best

    folders = {step.stage.name: step.folder for step in steps}
    for step in steps:
        if step.stage.name in config.finetune:
            register_best(config.finetune[step.stage.name], config, folders["prep"], out, step, Reporter())


def folder_names(stages: Sequence[Stage], out: Path) -> set[str]:
    """Return the names of the stages' folders in `out`."""
    return {folder.name for folder in stage_folders(stages, out).values()}


def run_stages(
    stages: Sequence[Stage],
    config: PlaceConfig,
    out: Path,
    make_reporter: Callable[[Path], Reporter],
    accepted: frozenset[str] = frozenset(),
    keep_work: Callable[[Mapping[str, Any]], None] = lambda theirs: None,
    summarise: Callable[[Mapping[str, StageRecord], Path, str], list[str]] = summary_lines,
) -> list[PlannedStage]:
    """Run any stages like `run_pipeline`; return their plan, whose stages are all finished now.

    `config` is the config of `out`. `keep_work` is passed on to `working_folder`. `summarise` returns the lines printed
    at the end, from the stages' records by name, `out` and the MLflow store.
    """
    store = store_uri(out, config.tracking.store)
    place = structured_log.Place(run=str(out.absolute()), job=structured_log.job_id())
    with (
        working_folder(out, config.model_dump(mode="json"), accepted, keep_work, Reporter().warn),
        structured_log.logged_to(structured_log.command_log(out / RunFiles.LOGS), place),
        run_state.written_to(out),
    ):
        steps = plan(stages, out)
        refuse_damage(steps)
        refuse_to_restart_training(steps)
        for step in steps:
            if step.must_run:
                step.stage.check_inputs(
                    step.folder
                )  # only for the errors it raises: the stage prints the lines itself
        reporter = make_reporter(out / RunFiles.LOG)
        check_store(out, store, steps, reporter)
        if any(step.must_run for step in steps) or not is_logged(out, steps, store):
            _execute(steps, config, out, reporter)
        else:
            for step in steps:
                _say_skipped(step, reporter)
            _publish_report(steps, out)
        for line in summarise({step.stage.name: _record(step) for step in steps}, out, store):
            reporter.line(line)
    return steps


def needed_stages(stages: Sequence[Stage], targets: Sequence[str]) -> list[Stage]:
    """Return `targets` and the stages that they need, in the graph's order."""
    names = {stage.name for target in targets for stage in ancestors(stages, target)}
    return [stage for stage in stages if stage.name in names]


def check_report_is_possible(config: RunConfig, out: Path) -> None:
    """Raise UserError if stages that the report needs are not finished; it names them."""
    check_owner(out, config.model_dump(mode="json"))
    steps = plan(build_stages(config), out)
    missing = [step.stage.name for step in steps if step.must_run and step.stage.name != "report"]
    if missing:
        raise UserError(
            f"there is nothing to report on in {out} yet, not finished: {', '.join(missing)}; "
            "`permcode run` with the same arguments runs what is missing"
        )


def _execute(steps: Sequence[PlannedStage], config: PlaceConfig, out: Path, reporter: Reporter) -> None:
    with ExitStack() as stack:
        mlflow_logger = stack.enter_context(_mlflow(config, out, reporter))
        has_ray = False
        for step in steps:
            if not step.must_run:
                _say_skipped(step, reporter)
            else:
                if step.stage.needs_ray and not has_ray:
                    stack.enter_context(ray_session(config.ray, out / RunFiles.LOGS, reporter.warn))
                    interrupt_on_sigterm()
                    check_cluster(out.absolute(), _corpus_paths(config, steps), reporter)
                    has_ray = True
                folders = {other.stage.name: other.folder for other in steps}
                resources = config.resources.get(step.stage.name, ResourcesConfig())
                with structured_log.at(stage=step.stage.name):
                    _run_step(step, folders, resources, mlflow_logger, reporter)
            mlflow_logger.submit(step, _record(step))
        _publish_report(steps, out)


def _corpus_paths(config: PlaceConfig, steps: Sequence[PlannedStage]) -> list[Path]:
    """Return the local places of the corpus if it has still to be read."""
    reads_corpus = any(step.stage.name == "prep" and step.must_run for step in steps)
    return local_paths(config.prep.source) if reads_corpus and isinstance(config, RunConfig) else []


def _run_step(
    step: PlannedStage,
    folders: Mapping[str, Path],
    resources: ResourcesConfig,
    mlflow_logger: MlflowLogger,
    reporter: Reporter,
) -> None:
    stage = step.stage
    run_state.change(stage=stage.name, attempt=None, num_workers=0, progress=None)
    reporter.line(f"{stage.name}: {'resumes' if step.action == 'resume' else 'runs'} ({step.reason})")
    start_s = time.monotonic()
    step.folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(step.folder)
    # Ray's workers have another working directory.
    inputs = {name: folders[name].absolute() for name in stage.inputs}
    with mlflow_logger.stage(step), _disk_full_is_user_error(step.folder):
        context = StageContext(step.folder.absolute(), inputs, reporter, step.signature, resources)
        summary = stage.run(context)
        record = StageRecord(
            stage=stage.name,
            key=step.key,
            version=stage.version,
            config=dict(stage.config),
            inputs=dict(step.input_keys),
            signature=step.signature,
            files=hash_outputs(step.folder),
            summary=summary,
            wall_s=round(time.monotonic() - start_s, 1),
            resumed=step.action == "resume",
        )
        write_record(step.folder, record)
    reporter.line(f"{stage.name}: finished in {duration_text(record.wall_s)}")


@contextmanager
def _mlflow(config: PlaceConfig, out: Path, reporter: Reporter) -> Iterator[MlflowLogger]:
    """Log to MLflow during the block; the MLflow run ends with the status of the block."""
    dumped = config.model_dump(mode="json")
    tracking = dumped.pop("tracking")
    mlflow_logger = open_mlflow(tracking, dumped, out, reporter)
    try:
        yield mlflow_logger
    except BaseException as error:
        mlflow_logger.close(status_of(error))
        raise
    mlflow_logger.close("FINISHED")


@contextmanager
def _disk_full_is_user_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UnfinishedError(
                f"disk full while working in {folder}: free some space and run the same command again"
            ) from error
        raise


def _say_skipped(step: PlannedStage, reporter: Reporter) -> None:
    took = duration_text(_record(step).wall_s)
    reporter.line(f"{step.stage.name}: skipped ({step.reason}; it took {took})")


def _record(step: PlannedStage) -> StageRecord:
    record = step.record or read_record(step.folder)
    if record is None:
        raise RuntimeError(f"stage {step.stage.name} has no record in {step.folder}")
    return record


def _publish_report(steps: Sequence[PlannedStage], out: Path) -> None:
    """Copy the report to the top of the run's folder."""
    for step in steps:
        if step.stage.name == "report":
            data = (step.folder / RunFiles.REPORT).read_bytes()
            target = out / RunFiles.REPORT
            if not target.is_file() or target.read_bytes() != data:
                write_bytes(target, data)
