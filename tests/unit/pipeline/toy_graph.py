"""A graph of three small stages that count how often they ran."""

from pathlib import Path
from typing import Any

from pipeline.folder.graph import PlannedStage, Stage, StageContext, plan
from pipeline.folder.stage_record import StageRecord, hash_outputs, write_record


class ToyGraph:
    """a -> b, a -> c. `runs` lists the stages run; the other attributes are what the stages depend on."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.signature = "corpus 1"
        self.config_b: dict[str, Any] = {"width": 3, "rate": {"peak": 0.1}}
        self.version_c = 1

    def stages(self) -> list[Stage]:
        return [
            Stage("a", {"seed": 0}, self._write, signature=lambda: self.signature),
            Stage("b", self.config_b, self._write, inputs=("a",)),
            Stage("c", {}, self._write, inputs=("a",), version=self.version_c),
        ]

    def finish(self, out: Path) -> None:
        """Run what a plan says must run, as the real runner does."""
        for step in plan(self.stages(), out):
            if step.must_run:
                finish_step(step)

    def actions(self, out: Path) -> dict[str, str]:
        return {step.stage.name: step.action for step in plan(self.stages(), out)}

    def _write(self, context: StageContext) -> dict[str, Any]:
        name = context.folder.name.split("-")[0]
        self.runs.append(name)
        (context.folder / "sub").mkdir(exist_ok=True)
        (context.folder / "sub" / "data.bin").write_bytes(name.encode() * 100)
        (context.folder / ".scratch").write_bytes(b"not an output")
        return {"num_bytes": 100}


def finish_step(step: PlannedStage) -> None:
    step.folder.mkdir(parents=True, exist_ok=True)
    context = StageContext(step.folder, {}, None)  # type: ignore[arg-type]
    summary = step.stage.run(context)
    write_record(step.folder, record_of(step, summary))


def record_of(step: PlannedStage, summary: dict[str, Any]) -> StageRecord:
    """What a step leaves that took a second."""
    return StageRecord(
        stage=step.stage.name,
        key=step.key,
        version=step.stage.version,
        config=dict(step.stage.config),
        inputs=dict(step.input_keys),
        signature=step.signature,
        files=hash_outputs(step.folder),
        summary=summary,
        wall_s=1.0,
    )
