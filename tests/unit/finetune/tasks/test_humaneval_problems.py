"""HumanEval's own solutions pass, others do not."""

import pytest

from cluster.errors import UserError
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import containment_problem, run_python
from finetune.tasks.humaneval_problems import (
    checking_program,
    humaneval_problems,
    measure_pass_at_k,
    until_stop,
)

contained = pytest.mark.skipif(containment_problem() is not None, reason=str(containment_problem()))
_LIMITS = Limits(wall_s=60, cpu_s=30)


@contained
def test_pass_at_k_of_some_canonical_solutions_is_one() -> None:
    problems = humaneval_problems()[:12]
    completions = [[problem.canonical_solution] for problem in problems]
    (measured,) = measure_pass_at_k(problems, completions, [1], _LIMITS, num_workers=2)
    assert (measured.name, measured.value, measured.num_items) == ("pass_at_1", 1.0, 12)


@contained
@pytest.mark.slow
def test_pass_at_k_of_all_canonical_solutions_is_one() -> None:
    problems = humaneval_problems()
    completions = [[problem.canonical_solution] for problem in problems]
    (measured,) = measure_pass_at_k(problems, completions, [1], _LIMITS, num_workers=2)
    assert (measured.value, measured.num_items) == (1.0, 164)


@contained
def test_samples_count_by_problem() -> None:
    problems = humaneval_problems()[:2]
    completions = [
        [problems[0].canonical_solution, "    pass\n", "    exit(0)\n", "  broken\n"],
        ["    return None\n"] * 4,
    ]
    heard: list[int] = []
    at_1, at_2 = measure_pass_at_k(problems, completions, [1, 2], _LIMITS, 2, heard.append)
    assert at_1.value == pytest.approx((1 / 4 + 0) / 2)
    assert at_2.value == pytest.approx((1 / 2 + 0) / 2)
    assert heard[-1] == 8


@contained
def test_tests_really_run() -> None:
    problem = humaneval_problems()[0]
    outcome = run_python(checking_program(problem, "    return not numbers\n"), _LIMITS)
    assert outcome.status == "failed"
    assert "AssertionError" in outcome.stderr_tail


def test_a_sample_ends_where_the_function_does() -> None:
    assert until_stop("    return 1\n\ndef g():\n    pass") == "    return 1\n"
    assert until_stop("    return 1\nprint(f())\nclass A: pass") == "    return 1"
    assert until_stop("    if x:\n        return 1\n") == "    if x:\n        return 1\n"


def test_other_numbers_of_samples_are_refused() -> None:
    with pytest.raises(UserError, match="samples for 1 problems, but there are 164"):
        measure_pass_at_k(humaneval_problems(), [["pass"]], [1], _LIMITS, 1)
