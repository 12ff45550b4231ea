"""What a command ends with: one line on stderr, and a number for the shell."""

import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import typer

from cluster.errors import RetryableError, UserError
from pipeline.folder.layout import RunFiles

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_RETRY = 75
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


@contextmanager
def exit_codes(out: Path | None, only_shows: bool = False) -> Iterator[None]:
    """Turn what the block raises into one line on stderr and an exit code.

    A block that `only_shows` may be cut off by its reader, as in `permcode inspect DIR | head`.
    """
    try:
        yield
    except UserError as error:
        _complain(f"error: {error}")
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except RetryableError as error:
        _complain(f"failed for now: {error}")
        raise typer.Exit(EXIT_RETRY) from None
    except (KeyboardInterrupt, SystemExit) as end:
        # Ray Train answers Ctrl-C with sys.exit, rich a closed pipe.
        if only_shows and isinstance(end.__context__, BrokenPipeError):
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        _complain("interrupted: the same command continues")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, typer.Exit):
            raise
        log = _write_traceback(out)
        first_line = (str(error).strip() or "no message").splitlines()[0]
        _complain(f"failed: {type(error).__name__}: {first_line} (the traceback is in {log})")
        raise typer.Exit(EXIT_FAILED) from None


def warn(text: str) -> None:
    """One line on stderr of what the user should know; the command goes on."""
    _complain(f"warning: {text}")


def _complain(text: str) -> None:
    sys.stdout.flush()
    print(f"permcode: {text}", file=sys.stderr, flush=True)


def _write_traceback(out: Path | None) -> Path:
    """Write the exception in flight below `out`, or to the temporary folder where there is no `out` yet."""
    folder = out / RunFiles.LOGS if out is not None and out.is_dir() else Path(tempfile.gettempdir())
    path = folder / f"permcode-failed-{datetime.now():%Y%m%d-%H%M%S}.log"
    try:
        folder.mkdir(exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        traceback.print_exc()
    return path
