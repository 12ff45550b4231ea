"""The first code that a jailed interpreter runs: reads the program from stdin, runs it, reports the verdict.

Its source is passed to the interpreter by `-c`, because no module of permcode can be imported inside. The verdict
carries a secret word: a program that only writes "passed" or ends the process does not know it. (A program that
searches the interpreter's frames could find it, but that only falsifies a score and does not endanger the machine.)
"""

import json
import os
import sys
import types


def _run() -> None:
    verdict_file = int(sys.argv[1])
    request = json.loads(sys.stdin.buffer.read())
    # The request is a file that could be read again, and it contains the secret.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Encoded in advance, because there may be no memory left later.
    verdicts = {name: f"{request['secret']} {name}\n".encode() for name in ("passed", "failed", "memory")}
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["program.py"]
    try:
        exec(compile(request["program"], "program.py", "exec"), module.__dict__)
        verdict = verdicts["passed"]
    except MemoryError:
        verdict = verdicts["memory"]
    except SystemExit as error:
        verdict = verdicts["failed"]
        print(f"left early with exit code {error.code}", file=sys.stderr)
    except BaseException as error:
        verdict = verdicts["failed"]
        # Without this function's own frame.
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, frames)
    os.write(verdict_file, verdict)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    os._exit(0)


_run()
