"""The output folder of a run: the config it belongs to, its lock, and cleaning up after bad input."""

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import RetryableError, UnfinishedError, UserError
from cluster.lease import HeldLease
from cluster.storage import exclusive_lock, sha256_bytes, write_bytes
from cluster.watch import watch_block
from pipeline.folder.accepted_changes import can_be_accepted, may_differ
from pipeline.folder.differences import changed_keys, describe_changes, flatten, without_added_keys
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.folder.sections import KEYS_WITHOUT_EFFECT_ON_OUTPUTS
from pretrain.checkpoint.listing import COMMIT_NAME

_CHECKSUM_MARK = "sha256:"
_CHECKSUM_START = f"# checksum of the lines above: {_CHECKSUM_MARK}"
_STAGE_FOLDER = re.compile(r".+-[0-9a-f]{12}")
_WAIT_FOR_STATUS_S = 2.0
_WORK_NAMES = (StageFiles.RECORD, COMMIT_NAME, StageFiles.RESULT)
# What `cluster.storage` writes before it renames.
_TEMPORARY_PATTERN = ".*.tmp"


def config_text(config: Mapping[str, Any]) -> str:
    """Return a resolved config as YAML, its keys in the order of the config classes."""
    text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    return text


def read_config(path: Path) -> dict[str, Any]:
    """Read the values of a folder's config.yaml. Raises UserError if its checksum is wrong.

    A file without a checksum, from an older permcode or written by hand, is read as it is.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        whole, _, last = text.removesuffix("\n").rpartition("\n")
        if last.startswith(_CHECKSUM_START):
            if last != _checksum_line(whole + "\n"):
                raise UserError(
                    f"{path} is damaged (its checksum differs): restore it from a copy; if you changed it by hand, "
                    "delete its last line"
                )
        elif _CHECKSUM_MARK in last:
            raise ValueError(last)
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise UserError(
            f"{path} is damaged, so it is not known which run the folder belongs to: restore it, or give another --out"
        )
    return values


def check_owner(out: Path, config: Mapping[str, Any], accepted: frozenset[str] = frozenset()) -> None:
    """Raise UserError unless `out` is free, or belongs to a config with the same outputs.

    Settings of pretraining that change no result, and those in `accepted`, may differ.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"the output folder {out} is a file: give --out another name")
    owner = out / RunFiles.CONFIG
    if not owner.is_file():
        foreign = sorted(entry.name for entry in out.iterdir() if not _may_lie_in_a_free_folder(entry.name))
        if any(_STAGE_FOLDER.fullmatch(name) for name in foreign):
            raise UserError(
                f"the output folder {out} has lost its {RunFiles.CONFIG}: the command that made it, with the same "
                "recipe and overrides, writes it again"
            )
        if foreign:
            raise UserError(
                f"the output folder {out} holds something else ({foreign[0]}, no {RunFiles.CONFIG}): "
                "give --out a new or an empty folder"
            )
        return
    theirs = read_config(owner)
    keys = [
        key
        for key in changed_keys(_with_effect(theirs), _with_effect(config))
        if not may_differ(key, accepted)
    ]
    if keys:
        changes = describe_changes(_only(keys, theirs), _only(keys, config))
        flags = " ".join(f"--accept {key}" for key in keys)
        raise UserError(
            f"the output folder {out} belongs to another config: {changes}; give --out another folder, "
            f"or the config that made this one{f', or resume with {flags}' if can_be_accepted(keys) else ''}"
        )


def restore_config(out: Path, config: Mapping[str, Any], own_folders: Callable[[], Collection[str]]) -> None:
    """Write config.yaml again where it was removed from a run's folder.

    A stage's folder is named by the fingerprint of its settings, so each folder must be one of `own_folders`, those of
    the stages of `config`; older reports may stay. Raises UserError where one is not.
    """
    if not out.is_dir() or (out / RunFiles.CONFIG).exists():
        return
    found = sorted(entry.name for entry in out.iterdir() if _STAGE_FOLDER.fullmatch(entry.name))
    if not found:
        return
    own = own_folders()
    others = [name for name in found if name not in own and not name.startswith("report-")]
    if others:
        raise UserError(
            f"the output folder {out} has lost its {RunFiles.CONFIG}, and {others[0]} was made under other settings "
            "than this command's: give the recipe and overrides that made it, which writes the file again"
        )
    _write_config(out / RunFiles.CONFIG, config)


@contextmanager
def working_folder(
    out: Path,
    config: Mapping[str, Any],
    accepted: frozenset[str] = frozenset(),
    keep_work: Callable[[Mapping[str, Any]], None] = lambda theirs: None,
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Lock `out` for this process during the block, and write its config there.

    If a UserError ends the block in a folder that held no run before, what was written is removed again, so that bad
    input leaves nothing behind. It is kept after an UnfinishedError, or where a stage, a checkpoint or a result was
    finished. Raises UserError if another process works in `out`.

    If the folder is removed or renamed during the block, the block is ended with an UnfinishedError, and what it wrote
    afterwards under the old name is removed.

    `keep_work` is called with the config that the folder had before this one is written. `warn` gets the reason when
    this waits for a process of another node to end.
    """
    # The topmost folder that has to be created.
    first_missing = next((folder for folder in [*reversed(out.parents), out] if not folder.exists()), None)
    check_owner(out, config, accepted)
    had_lock = (out / RunFiles.LOCK).exists()
    with ExitStack() as stack:
        with _must_be_writable(out, first_missing):
            # `permcode status` holds the lock for a moment.
            stack.enter_context(exclusive_lock(out / RunFiles.LOCK, wait_s=_WAIT_FOR_STATUS_S))
        # Looked at with the lock held, because another process could still write before.
        was_free = not (out / RunFiles.CONFIG).exists()
        earlier = {entry.name for entry in out.iterdir() if had_lock or entry.name != RunFiles.LOCK}
        try:
            check_owner(out, config, accepted)
            if not was_free:
                keep_work(read_config(out / RunFiles.CONFIG))
            with _must_be_writable(out, first_missing):
                for leftover in out.glob(_TEMPORARY_PATTERN):
                    leftover.unlink()
                _write_config(out / RunFiles.CONFIG, config)
            with HeldLease(out, warn) as lease, _removal_is_user_error(out, lease):
                yield
        except UserError as error:
            if was_free and not isinstance(error, UnfinishedError) and not _holds_work(out):
                _remove_new_entries(out, earlier)
                _remove_empty_folders(out, first_missing)
            raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that atomic writes of a killed process left below `folder`."""
    for path in folder.rglob(_TEMPORARY_PATTERN):
        if not path.is_dir():
            path.unlink(missing_ok=True)


@contextmanager
def _removal_is_user_error(out: Path, lease: HeldLease) -> Iterator[None]:
    # The folder itself is watched, not a file in it: a removed lock file does not mean a removed run. It is held open,
    # so that its inode number is not given to a new folder.
    held = os.open(out, os.O_RDONLY | os.O_DIRECTORY)

    def is_gone() -> bool:
        try:
            return not os.path.samestat(os.stat(out), os.fstat(held))
        except FileNotFoundError:
            return True
        except OSError:  # a file system that does not answer is no sign of a removed folder
            return False

    # Not retryable: a scheduler that repeats the command would silently start from nothing.
    error = UnfinishedError(
        f"the output folder {out} was removed or renamed while this command worked in it: "
        "rename it back, or run the same command again to start from nothing"
    )
    taken_over = RetryableError(
        f"another permcode process has taken over {out}, because this one did not renew its lease: it was frozen or "
        "cut off from the storage",
        "storage",
    )

    def look() -> Exception | None:
        if is_gone():
            return error
        return taken_over if lease.is_lost() else None

    try:
        with watch_block(look, close=lambda: None):
            yield
    except UnfinishedError as raised:
        if (
            raised is error
            and is_gone()
            and not any((out / name).exists() for name in (RunFiles.LOCK, RunFiles.CONFIG))
        ):
            _remove_stray_work(out)
        raise
    finally:
        os.close(held)


def _remove_stray_work(out: Path) -> None:
    """Remove what this command's processes wrote after `out` was removed, recognised by its names."""
    for entry in list(out.iterdir()) if out.is_dir() else []:
        if entry.name == RunFiles.LOGS or _STAGE_FOLDER.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name.startswith((".tracked", RunFiles.MLFLOW_STORE)) or fnmatch(
            entry.name, _TEMPORARY_PATTERN
        ):
            entry.unlink(missing_ok=True)
    with suppress(OSError):
        out.rmdir()


def _may_lie_in_a_free_folder(name: str) -> bool:
    """Return whether a command that was killed before it wrote config.yaml may have left a file of this name."""
    return name in (RunFiles.LOCK, RunFiles.LOGS) or fnmatch(name, f".{RunFiles.CONFIG}.*.tmp")


def _write_config(path: Path, config: Mapping[str, Any]) -> None:
    text = config_text(config)
    data = f"{text}{_checksum_line(text)}\n".encode()
    if not path.exists() or path.read_bytes() != data:
        write_bytes(path, data)


def _checksum_line(text: str) -> str:
    return f"{_CHECKSUM_START}{sha256_bytes(text.encode())}"


def _only(keys: Collection[str], config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flatten(config).items() if key in keys}


def _with_effect(config: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in config.items() if key not in KEYS_WITHOUT_EFFECT_ON_OUTPUTS}
    return without_added_keys(found)


@contextmanager
def _must_be_writable(out: Path, first_missing: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _remove_empty_folders(out, first_missing)
        raise UserError(
            f"cannot write in the output folder {out} ({error.strerror}): give another --out"
        ) from error


def _holds_work(out: Path) -> bool:
    """Return whether the folder holds results worth keeping: a finished stage, a checkpoint, a job's result."""
    return any(True for name in _WORK_NAMES for _ in out.rglob(name))


def _remove_new_entries(out: Path, earlier: Collection[str]) -> None:
    for entry in out.iterdir():
        if entry.name in earlier:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _remove_empty_folders(out: Path, first_missing: Path | None) -> None:
    """Remove `out` and the folders that were created above it, as long as they are empty."""
    if first_missing is None:
        return
    for folder in [out, *out.parents]:
        try:
            folder.rmdir()
        except FileNotFoundError:  # it was never created
            pass
        except OSError:
            return
        if folder == first_missing:
            return
