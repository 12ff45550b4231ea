"""Folders of pretraining runs as they look from outside: alive, stopped, finished, dead."""

import json
import os
from pathlib import Path
from typing import Any

from pipeline.folder.recipe import load_run_config
from pipeline.folder.run_folder import config_text

NOW_S = 2_000_000_000.0
STEPS_PER_COMMIT = 5


class RunOnDisk:
    """Writes a journal of one-second steps that ends `age_s` before now, and a heartbeat with it."""

    def __init__(self, out: Path, began_s: float = NOW_S - 1000) -> None:
        self.out, self.folder = out, out / "pretrain-0123456789ab"
        self.folder.mkdir(parents=True)
        config = load_run_config("smoke").model_dump(mode="json")
        (out / "config.yaml").write_text(config_text(config))
        self.clock_s = began_s
        self.step = 0

    def attempt(self, num_steps: int, gpu: str | None = None, previous_beat_s: float | None = None) -> None:
        """A process that starts within two seconds and makes so many steps."""
        began_s = self.clock_s
        self.clock_s += 1
        self.event("attempt", process_started_s=began_s, previous_beat_s=previous_beat_s, gpu=gpu)
        self.clock_s += 1
        shape = {"num_steps": 40, "lanes": 4, "segment_tokens": 64, "world_size": 2}
        self.event("start", process_started_s=began_s, step=self.step, **shape)
        for _ in range(num_steps):
            self.one_step()

    def one_step(self, **measured: float) -> None:
        """A second of work, a checkpoint now and then; metrics come out as `measured`."""
        facts = {"began_s": self.clock_s, "data_s": 0.1, "compute_s": 0.9, "save_s": 0.0, "evaluation_s": 0.0}
        self.clock_s += 1
        self.step += 1
        metrics = {"loss": 5.0 - self.step / 10, "tokens_per_s": 256.0}
        if self.step % STEPS_PER_COMMIT == 0:
            metrics["validation_bits_per_byte"] = 3.0 + (self.step - 10) ** 2 / 100
        metrics |= measured
        self._write({"kind": "step", "step": self.step, "metrics": metrics, "facts": facts})
        if self.step % STEPS_PER_COMMIT == 0:
            self.event("checkpoint", step=self.step, reason="cadence", stall_s=0.0)

    def killed(self, back_to: int) -> None:
        """The next attempt resumes from there."""
        self.beat()
        self.step = back_to

    def event(self, name: str, level: str = "info", **facts: Any) -> None:
        self._write(
            {"kind": "event", "text": f"the event {name}", "level": level, "name": name, "facts": facts}
        )

    def beat(self) -> None:
        path = self.folder / "heartbeat"
        if not path.exists():  # touching it again would make it a beat of this machine's clock for a moment
            path.touch()
        os.utime(path, (self.clock_s, self.clock_s))

    def _write(self, record: dict[str, Any]) -> None:
        with (self.folder / "journal.jsonl").open("a") as file:
            file.write(json.dumps({**record, "time_s": self.clock_s}) + "\n")
