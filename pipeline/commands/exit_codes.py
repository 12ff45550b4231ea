"""The end of a command: one line on stderr and an exit code."""

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
    """Turn exceptions of the block into one line on stderr and an exit code.

    With `only_shows`, the reader of the output may close it early, as in `permcode inspect DIR | head`.
    """
    try:
        yield
    except UserError as error:
        _complain(f"error: {error}")
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except RetryableError as error:
        _complain(f"failed for now ({error.kind}): {error}")
        raise typer.Exit(EXIT_RETRY) from None
    except (KeyboardInterrupt, SystemExit) as end:
        # Ray Train calls sys.exit on Ctrl-C, rich on a closed pipe.
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
    """Print a warning on stderr as one line."""
    _complain(f"warning: {text}")


def _complain(text: str) -> None:
    sys.stdout.flush()
    print(f"permcode: {text}", file=sys.stderr, flush=True)


def _write_traceback(out: Path | None) -> Path:
    """Write the traceback of the current exception below `out`, or to the temporary folder if `out` does not exist."""
    folder = out / RunFiles.LOGS if out is not None and out.is_dir() else Path(tempfile.gettempdir())
    path = folder / f"permcode-failed-{datetime.now():%Y%m%d-%H%M%S}.log"
    try:
        folder.mkdir(exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        traceback.print_exc()
    return path
