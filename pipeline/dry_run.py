"""What a command would do, without doing it."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.config import RunConfig
from pipeline.graph import plan
from pipeline.run import needed_stages
from pipeline.run_folder import check_owner, config_text
from pipeline.stages import build_stages


def config_lines(config: RunConfig) -> list[str]:
    """The resolved config as YAML."""
    return config_text(config.model_dump(mode="json")).splitlines()


def dry_run_lines(config: RunConfig, out: Path, targets: Sequence[str]) -> list[str]:
    """The resolved config, then a line per stage: what it reads, where it works, what happens and why.

    Reads `out` and the corpus's listing, writes nothing. Raises UserError as the real command would.
    """
    check_owner(out, config.model_dump(mode="json"))
    lines = [*config_lines(config), ""]
    for step in plan(needed_stages(build_stages(config), targets), out):
        reads = " + ".join(step.stage.inputs) or "the corpus"
        lines.append(f"{step.stage.name:<11} {step.action:<8} {step.folder}")
        lines.append(f"{'':<11} reads {reads}; {step.reason}")
    return lines
