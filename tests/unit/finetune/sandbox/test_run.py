"""What programs in the sandbox may do, and the reported outcome."""

import pytest

from cluster.errors import UserError
from finetune.sandbox import run
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import containment_problem, run_many, run_python

contained = pytest.mark.skipif(containment_problem() is not None, reason=str(containment_problem()))
_LIMITS = Limits(wall_s=20)


@contained
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("assert sum([1, 2]) == 3", "passed"),
        ("assert sum([1, 2]) == 4", "failed"),
        ("def f(:", "failed"),
        ("x = '\ud800'", "failed"),
        # Left before the end: the checks below were never run.
        ("import sys; sys.exit(0)\nassert False", "failed"),
        ("import os; os._exit(0)\nassert False", "failed"),
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        ("import sys; sys.stdout.close(); sys.stderr = None", "passed"),
    ],
)
def test_status(program: str, status: str) -> None:
    assert run_python(program, _LIMITS).status == status


@contained
def test_a_program_cannot_pass_by_saying_so() -> None:
    program = """
import os
for file in range(64):
    try:
        os.write(file, b'passed\\n')
    except OSError:
        pass
assert False
"""
    assert run_python(program, _LIMITS).status == "failed"


@contained
def test_the_request_cannot_be_read_again() -> None:
    program = """
import os
try:
    os.lseek(0, 0, os.SEEK_SET)
except OSError:
    pass
print(os.read(0, 100), [file for file in range(3, 64) if os.path.exists(f"/dev/fd/{file}")])
"""
    assert run_python(program, _LIMITS).stdout == "b'' []\n"


@contained
def test_output_and_the_end_of_the_traceback_are_reported() -> None:
    outcome = run_python("print('größer')\nraise ValueError('no such thing')", _LIMITS)
    assert outcome.stdout == "größer\n"
    assert outcome.stderr_tail.endswith("ValueError: no such thing\n")
    assert 'File "program.py", line 2' in outcome.stderr_tail


@contained
def test_a_program_is_a_main_module_with_the_standard_library_only() -> None:
    program = """
import collections, dataclasses, heapq, json, math, re, typing
@dataclasses.dataclass
class Point:
    x: "int"
assert __name__ == "__main__"
assert typing.get_type_hints(Point) == {"x": int}
try:
    import numpy
except ImportError:
    print("no numpy")
"""
    assert run_python(program, _LIMITS).stdout == "no numpy\n"


@contained
def test_many_come_back_in_order() -> None:
    heard: list[int] = []
    programs = [
        f"import time; time.sleep({0.2 if number == 0 else 0}); print({number})" for number in range(6)
    ]
    outcomes = run_many(programs, _LIMITS, num_workers=3, on_progress=heard.append)
    assert [outcome.stdout for outcome in outcomes] == [f"{number}\n" for number in range(6)]
    assert heard == [1, 2, 3, 4, 5, 6]


def test_without_containment_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = run.JAIL_PROGRAM.replace(
        "main()",
        "kernel.unshare = lambda flags: (_ for _ in ()).throw(OSError(1, 'unshare: not permitted')); main()",
    ).replace("from finetune", "from finetune.sandbox import kernel; from finetune")
    monkeypatch.setattr(run, "JAIL_PROGRAM", refusing)
    with pytest.raises(UserError, match=r"cannot be contained on this machine \(unshare: not permitted\)"):
        run_python("print('ran')", _LIMITS)


def test_doctor_says_whether_programs_can_be_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "containment_problem", lambda: None)
    assert (run.sandbox_check().level, run.sandbox_check().name) == ("ok", "sandbox")
    monkeypatch.setattr(run, "containment_problem", lambda: "libseccomp.so.2 is not installed")
    check = run.sandbox_check()
    assert check.level == "warning"
    assert "libseccomp.so.2 is not installed" in check.finding
