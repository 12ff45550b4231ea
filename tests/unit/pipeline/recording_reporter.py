"""A reporter that records its lines and warnings."""

from pathlib import Path

from cluster.reporter import Reporter


class RecordingReporter(Reporter):
    """`lines` and `warnings`, in order; nothing reaches the terminal."""

    def __init__(self, log_path: Path | None = None) -> None:
        super().__init__(log_path)
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
