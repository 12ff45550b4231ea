"""The first thing a jailed interpreter runs: reads the program from stdin, runs it, says how it went.

Its source is given to the interpreter by `-c`: nothing of ours can be imported inside. It learns by a secret word that
the program came to its end; a program that only wrote "passed" or ended the process would not know it. (A program
made to search the interpreter's own frames could: what is at stake is a score, not the machine.)
"""

import json
import os
import sys
import types


def _run() -> None:
    verdict_file = int(sys.argv[1])
    request = json.loads(sys.stdin.buffer.read())
    # The request could be read again: it is a file, and the secret stands in it.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Written beforehand: there may be no memory left when it is needed.
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
