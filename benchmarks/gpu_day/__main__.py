"""Everything that only a GPU can tell, in eight minutes: tests, errors, times, tiles, steps, generation, memory.

    python -m benchmarks.gpu_day --out FOLDER                            needs a GPU
    python -m benchmarks.gpu_day --out FOLDER --device cpu --size tiny   shows that the program works, measures nothing

Needs torch, Triton, NumPy and pydantic; without pytest the tests are left out, without transformers the peers. Every
part is a process with a time limit, so none can take another one with it. FOLDER gets a JSON file and a log of each
part, `results.md`, which grows part by part and ends with the targets, and a `tile_sizes.json` with measured entries.
The exit code is 1 if a part failed.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_MINUTES = 7.5


@dataclass(frozen=True)
class Part:
    """A part of the day: a function `run(day)` of a module, and its share of the time."""

    name: str
    module: str
    title: str
    share: float
    function: str = "run"


PARTS = (
    Part("compilation", "compilation", "Compilation", 45),
    Part("gpu_tests", "gpu_tests", "Tests", 80),
    Part("kernel_errors", "kernel_errors", "Errors of the kernels", 30),
    Part("kernel_times", "kernel_times", "Times of the kernels", 75),
    Part("tile_tuning", "tile_tuning", "Sizes of tiles", 60),
    Part("step_times", "step_times", "Training step", 60),
    Part("step_profile", "step_profile", "Profile of a training step", 25),
    Part("generation", "generation_times", "Generation", 40),
    Part("step_memory", "step_memory", "Memory of a training pass", 25),
    # Last: it gets the time that the others leave.
    Part("compiled_step_times", "step_times", "Training step with torch.compile", 75, "run_compiled"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run all parts, or the one that is asked for in this process; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("base", "tiny"), default="base")
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="of all parts together")
    parser.add_argument("--only", default="", help="names of parts with commas between them")
    parser.add_argument("--part", choices=[part.name for part in PARTS], help=argparse.SUPPRESS)
    parser.add_argument("--limit-s", type=float, default=60.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.part:
        run_part(arguments)
        return 0
    if arguments.device == "cuda" and not has_gpu():
        print("needs a GPU that PyTorch can use: run it where nvidia-smi shows one", file=sys.stderr)
        return 2
    return run_day(arguments)


def has_gpu() -> bool:
    """Return whether PyTorch can use a GPU; asked in another process, so that this one holds nothing of it."""
    words = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(words).returncode == 0


def run_part(arguments: argparse.Namespace) -> None:
    """Run one part in this process."""
    part = next(one for one in PARTS if one.name == arguments.part)
    from benchmarks.gpu_day.day import SCALES, Day

    day = Day(arguments.out, part.name, arguments.device, SCALES[arguments.size], arguments.limit_s)
    day.save()
    getattr(importlib.import_module(f"benchmarks.gpu_day.{part.module}"), part.function)(day)


def run_day(arguments: argparse.Namespace) -> int:
    """Run the parts one after the other, each in a process of its own; return 1 if one failed."""
    wanted = [part for part in PARTS if not arguments.only or part.name in arguments.only.split(",")]
    results: Path = arguments.out / "results.md"
    results.write_text(_beginning(arguments), encoding="utf-8")
    ends_s = time.monotonic() + 60 * arguments.minutes
    num_failed = 0
    for number, part in enumerate(wanted):
        share = part.share / sum(one.share for one in wanted[number:])
        limit_s = max(0.0, ends_s - time.monotonic()) * share
        outcome, took_s = _outcome_of(part, arguments, limit_s)
        num_failed += outcome != "done"
        line = f"{part.name}: {outcome}, {took_s:.0f} s of {limit_s:.0f} s"
        print(line, flush=True)
        _append(
            results,
            f"\n## {part.title}\n\n{line}; log: `{part.name}.log`.\n" + _tables_of(arguments.out, part),
        )
    _append(results, "\n## Targets\n\n" + _targets(arguments))
    print(results.read_text(encoding="utf-8").split("\n## Targets\n")[1])
    return int(num_failed > 0)


def _outcome_of(part: Part, arguments: argparse.Namespace, limit_s: float) -> tuple[str, float]:
    """Run a part for so long at most; return how it ended and the seconds it took."""
    started_s = time.monotonic()
    (arguments.out / f"{part.name}.json").unlink(missing_ok=True)
    words = ["--out", str(arguments.out), "--device", arguments.device, "--size", arguments.size]
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_day",
        *words,
        "--part",
        part.name,
        "--limit-s",
        str(limit_s),
    ]
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    interprets = "0" if arguments.device == "cuda" else "1"
    environment = os.environ | {"TRITON_INTERPRET": interprets, "PYTHONPATH": python_path}
    with (arguments.out / f"{part.name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout=limit_s)
            outcome = "done" if code == 0 else f"failed with exit code {code}"
        except subprocess.TimeoutExpired:
            outcome = "ended by its time limit"
        finally:
            _end_group(process)
    return outcome, time.monotonic() - started_s


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End the part's process and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _beginning(arguments: argparse.Namespace) -> str:
    from benchmarks.gpu_day.day import NO_USE

    what = f"**{NO_USE}**: no GPU, kernels interpreted.\n" if arguments.device == "cpu" else ""
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return f"# A day with a GPU\n\n{what}Size `{arguments.size}`, begun {when}.\n"


def _tables_of(folder: Path, part: Part) -> str:
    """Return what a part has written, also before it failed, as Markdown."""
    path = folder / f"{part.name}.json"
    if not path.exists():
        return f"\nNothing was written. The log's end:\n\n```\n{_tail(folder, part)}\n```\n"
    content = json.loads(path.read_text(encoding="utf-8"))
    text = f"\n{content['device']}\n"
    for title, rows in content["tables"].items():
        text += f"\n### {title}\n\n{markdown_table(rows)}"
    return text + "".join(f"\n- {note}" for note in content["notes"]) + "\n" * bool(content["notes"])


def _tail(folder: Path, part: Part) -> str:
    return "\n".join((folder / f"{part.name}.log").read_text(errors="replace").splitlines()[-15:])


def _targets(arguments: argparse.Namespace) -> str:
    from benchmarks.gpu_day.day import NO_USE, write_json
    from benchmarks.gpu_day.targets import rows

    found = rows(arguments.out, arguments.size)
    write_json(arguments.out / "targets.json", found)
    warning = f"**{NO_USE}.**\n\n" if arguments.device == "cpu" else ""
    return warning + markdown_table(found)


def markdown_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a Markdown table; columns in the order in which rows bring them."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column)) for column in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value).replace("|", "/")


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
