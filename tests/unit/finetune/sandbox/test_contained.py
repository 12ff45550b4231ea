"""Programs that mean harm: each ends with its own status, and nothing outside has changed."""

import ast
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil
import pytest

from finetune.sandbox.limits import MAX_OUTPUT_BYTES, Limits
from finetune.sandbox.run import containment_problem, run_many, run_python
from tests.unit.finetune.sandbox import hostile

pytestmark = pytest.mark.skipif(containment_problem() is not None, reason=str(containment_problem()))

_LIMITS = Limits(wall_s=20, cpu_s=10)
_SHORT = Limits(wall_s=1.5, cpu_s=10)


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _become_empty(left: Callable[[], Collection[object]]) -> bool:
    """On a busy machine the kernel takes a moment to end what was killed."""
    deadline_s = time.monotonic() + 5
    while left():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("program", [hostile.ENDLESS_LOOP, hostile.SLEEP, hostile.IGNORES_SIGNALS])
def test_what_does_not_end_is_ended(program: str) -> None:
    before = _descendants()
    outcome = run_python(program, _SHORT)
    assert outcome.status == "timeout"
    assert 1.5 <= outcome.seconds < 10
    assert _become_empty(lambda: _descendants() - before)


def test_processor_time_is_limited_apart_from_the_clock() -> None:
    outcome = run_python(hostile.IGNORES_SIGNALS, Limits(wall_s=60, cpu_s=1))
    assert outcome.status == "timeout"
    assert outcome.seconds < 30


def test_a_fork_bomb_is_ended_with_all_its_children() -> None:
    outcome = run_python(hostile.FORK_BOMB, Limits(wall_s=1.5, cpu_s=10, processes=_BOMBS))
    assert outcome.status == "timeout"
    assert _become_empty(
        lambda: [file for file in Path("/proc").glob("[0-9]*/limits") if _is_of_the_bomb(file)]
    )


_BOMBS = 37
"""A limit that no other process on the machine will have: the bomb's are known by it."""


def _is_of_the_bomb(limits_file: Path) -> bool:
    try:
        text = limits_file.read_text(encoding="ascii")
    except OSError:
        return False
    return any(
        line.startswith("Max processes") and line.split()[2] == str(_BOMBS) for line in text.splitlines()
    )


def test_the_bomb_would_be_found() -> None:
    with subprocess.Popen([sys.executable, "-c", _LIMITED_SLEEP], stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        assert _is_of_the_bomb(Path(f"/proc/{sleeper.pid}/limits"))
        sleeper.kill()


_LIMITED_SLEEP = f"""
import resource, time
resource.setrlimit(resource.RLIMIT_NPROC, ({_BOMBS}, {_BOMBS}))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("program", [hostile.COUNT_FORKS, hostile.THREADS])
def test_processes_and_threads_are_counted(program: str) -> None:
    outcome = run_python(program, Limits(wall_s=20, processes=5))
    assert outcome.status == "passed"
    assert int(outcome.stdout) <= 5


def test_sandboxes_do_not_share_one_count() -> None:
    outcomes = run_many([hostile.COUNT_FORKS] * 4, Limits(wall_s=20, processes=5), num_workers=4)
    assert {outcome.stdout for outcome in outcomes} == {outcomes[0].stdout}
    assert int(outcomes[0].stdout) >= 2


def test_a_child_that_would_outlive_its_program_is_killed_with_it() -> None:
    before, started = _descendants(), time.monotonic()
    outcome = run_python(hostile.DETACHED_CHILD, _LIMITS)
    assert outcome.status == "passed"
    assert time.monotonic() - started < 15
    assert _become_empty(lambda: _descendants() - before)


def test_memory_is_limited() -> None:
    outcome = run_python(hostile.MEMORY_HOG, Limits(memory_bytes=128 * 1024**2))
    assert outcome.status == "memory"


def test_output_is_limited() -> None:
    outcome = run_python(hostile.HUGE_OUTPUT, _LIMITS)
    assert outcome.status == "output"
    assert len(outcome.stdout) <= 2 * MAX_OUTPUT_BYTES


def test_files_are_limited_in_size_and_number() -> None:
    assert "No space left" in run_python(hostile.DISK_HOG, Limits(disk_bytes=10_000_000)).stderr_tail
    assert "Too many open files" in run_python(hostile.TOO_MANY_FILES, _LIMITS).stderr_tail


def test_a_crash_is_counted_as_killed_and_deep_nesting_does_no_harm() -> None:
    assert run_python(hostile.CRASH, _LIMITS).status == "killed"
    assert run_python(hostile.DEEP_NESTING, _LIMITS).status in ("failed", "memory", "killed")


def test_no_file_outside_is_read_changed_or_deleted(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious", encoding="utf-8")
    victim.chmod(0o666)
    tmp_path.chmod(0o777)
    program = f"""
import os, shutil
shutil.rmtree({str(tmp_path)!r}, ignore_errors=True)
for act in (os.remove, lambda path: open(path, "w"), lambda path: open(path)):
    try:
        act({str(victim)!r})
        print("reached")
    except OSError:
        pass
print([path for path in ({str(tmp_path)!r}, "/etc/passwd", "/proc/self", "/sys/kernel") if os.path.exists(path)])
print(sorted(os.listdir("/")))
"""
    outcome = run_python(program, _LIMITS)
    assert outcome.status == "passed"
    seen, root = outcome.stdout.splitlines()
    assert seen == "[]"
    # The folders that lead to the interpreter and the libraries, and the program's own.
    prefix = Path(os.path.realpath(sys.base_prefix)).parts[1]
    assert set(ast.literal_eval(root)) <= {prefix, "lib", "lib64", "usr", "etc", "dev", "sandbox"}
    assert victim.read_text(encoding="utf-8") == "precious"


def test_the_interpreter_and_the_libraries_are_read_only() -> None:
    program = f"""
import os
for folder in ({sys.base_prefix!r}, os.path.dirname(os.__file__), "/lib", "/usr/lib", "/", "/dev", "/etc"):
    try:
        open(folder + "/planted", "w")
        print("wrote into", folder)
    except OSError:
        pass
    # Rights alone would refuse a stranger too; the caller's own files must be safe from the caller's user id.
    if not os.statvfs(folder).f_flag & os.ST_RDONLY:
        print("not read-only:", folder)
"""
    assert run_python(program, _LIMITS).stdout == ""


def test_home_is_an_empty_folder_that_vanishes(tmp_path: Path) -> None:
    program = """
import os, pathlib, tempfile
print(os.listdir(pathlib.Path.home()), os.getcwd() == str(pathlib.Path.home()))
(pathlib.Path.home() / "mine").write_text("x")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
"""
    for _ in range(2):
        outcome = run_python(program, _LIMITS)
        assert (outcome.status, outcome.stdout) == ("passed", "[] True\n")
    assert not (Path.home() / "mine").exists()


def test_the_network_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = run_python(hostile.NETWORK.format(port=port), _LIMITS)
    assert (outcome.status, outcome.stdout) == ("passed", "")


def test_no_environment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "hidden")
    outcome = run_python("import os; print(sorted(os.environ))", _LIMITS)
    assert outcome.stdout == "['HOME', 'LANG', 'PATH', 'TMPDIR']\n"


def test_other_processes_are_neither_seen_nor_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as sleeper:
        try:
            outcome = run_python(hostile.KILL.format(process=sleeper.pid), _LIMITS)
            assert outcome.status == "passed"
            assert sleeper.poll() is None
        finally:
            sleeper.kill()


def test_no_right_is_left_to_change_the_jail() -> None:
    outcome = run_python(hostile.MOUNT, _LIMITS)
    assert outcome.stdout == "-1 -1 -1\n"
