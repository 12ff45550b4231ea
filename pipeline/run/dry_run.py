"""What a command would do, without doing it."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.folder.config import RunConfig
from pipeline.folder.graph import Stage, plan
from pipeline.folder.run_folder import check_owner, config_text
from pipeline.folder.sections import PlaceConfig
from pipeline.run.run import needed_stages
from pipeline.run.stages import build_stages


def config_lines(config: PlaceConfig) -> list[str]:
    """The resolved config as YAML."""
    return config_text(config.model_dump(mode="json")).splitlines()


def dry_run_lines(
    config: RunConfig, out: Path, targets: Sequence[str], accepted: frozenset[str] = frozenset()
) -> list[str]:
    """The resolved config, then a line per stage: what it reads, where it works, what happens and why.

    Reads `out` and the corpus's listing, writes nothing. Raises UserError as the real command would.
    """
    return stage_lines(needed_stages(build_stages(config), targets), config, out, accepted)


def stage_lines(
    stages: Sequence[Stage], config: PlaceConfig, out: Path, accepted: frozenset[str] = frozenset()
) -> list[str]:
    """`dry_run_lines` for any stages."""
    check_owner(out, config.model_dump(mode="json"), accepted)
    lines = [*config_lines(config), ""]
    for step in plan(stages, out):
        lines.append(f"{step.stage.name:<11} {step.action:<8} {step.folder}")
        lines.append(f"{'':<11} {_reads(step.stage)}; {step.reason}")
        if step.must_run:
            lines += [f"{'':<11} {line}" for line in step.stage.check_inputs(step.folder)]
    return lines


def submit_dry_run_lines(config: RunConfig, out: Path, address: str) -> list[str]:
    """The resolved config, the stages, and where they would run.

    Nothing is asked of the cluster: only there, where corpus and folder are, can be told which stages are finished.
    """
    lines = [*config_lines(config), ""]
    for stage in build_stages(config):
        lines.append(f"{stage.name:<11} {out.absolute()}/{stage.name}-KEY")
        lines.append(f"{'':<11} {_reads(stage)}; runs, resumes or is skipped by what lies there")
    return [*lines, "", f"would be sent to {address}, to run there in {out.absolute()}"]


def _reads(stage: Stage) -> str:
    return f"reads {' + '.join(stage.inputs) or 'the corpus'}"
