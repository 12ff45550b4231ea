"""The output of `--dry-run`: what a command would do."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.folder.config import RunConfig
from pipeline.folder.graph import Stage, plan
from pipeline.folder.run_folder import check_owner, config_text
from pipeline.folder.sections import PlaceConfig
from pipeline.run.run import needed_stages
from pipeline.run.stages import build_stages


def config_lines(config: PlaceConfig) -> list[str]:
    """Return the lines of the resolved config as YAML."""
    return config_text(config.model_dump(mode="json")).splitlines()


def dry_run_lines(
    config: RunConfig, out: Path, targets: Sequence[str], accepted: frozenset[str] = frozenset()
) -> list[str]:
    """Return the resolved config, then for every stage its action, its folder, what it reads and the reason.

    Reads `out` and the corpus's listing, writes nothing. Raises UserError as the command itself would.
    """
    return stage_lines(needed_stages(build_stages(config), targets), config, out, accepted)


def stage_lines(
    stages: Sequence[Stage], config: PlaceConfig, out: Path, accepted: frozenset[str] = frozenset()
) -> list[str]:
    """Return the same lines as `dry_run_lines` for any stages."""
    check_owner(out, config.model_dump(mode="json"), accepted)
    lines = [*config_lines(config), ""]
    for step in plan(stages, out):
        lines.append(f"{step.stage.name:<11} {step.action:<8} {step.folder}")
        lines.append(f"{'':<11} {_reads(step.stage)}; {step.reason}")
        if step.must_run:
            lines += [f"{'':<11} {line}" for line in step.stage.check_inputs(step.folder)]
    return lines


def submit_dry_run_lines(config: RunConfig, out: Path, address: str) -> list[str]:
    """Return the resolved config, the stages, and where they would run.

    The cluster is not contacted, so it is not known which stages are finished there.
    """
    lines = [*config_lines(config), ""]
    for stage in build_stages(config):
        lines.append(f"{stage.name:<11} {out.absolute()}/{stage.name}-KEY")
        lines.append(f"{'':<11} {_reads(stage)}; runs, resumes or is skipped, depending on this folder")
    return [*lines, "", f"would be sent to {address}, to run there in {out.absolute()}"]


def _reads(stage: Stage) -> str:
    return f"reads {' + '.join(stage.inputs) or 'the corpus'}"
