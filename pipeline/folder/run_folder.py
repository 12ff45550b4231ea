"""The output folder of a run: whose it is, who works in it, what a run that failed at once leaves behind."""

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import UnfinishedError, UserError
from cluster.storage import exclusive_lock, sha256_bytes, write_bytes
from cluster.watch import watch_block
from pipeline.folder.accepting import could_be_accepted, may_differ
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
    """A resolved config as YAML, in the order of its classes."""
    text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    return text


def read_config(path: Path) -> dict[str, Any]:
    """The values of a folder's config.yaml. UserError when it is not what was written there.

    One without a checksum, of an older permcode or written by hand, is taken as it is.
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
            f"{path} is damaged, so nobody can say whose the folder is: restore it, or give --out another folder"
        )
    return values


def check_owner(out: Path, config: Mapping[str, Any], accepted: frozenset[str] = frozenset()) -> None:
    """Raise UserError unless `out` is free, or belongs to a config that makes the same outputs.

    Settings of pretraining that change no result, and those `accepted`, may differ.
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
            f"or the config that made this one{f', or go on with {flags}' if could_be_accepted(keys) else ''}"
        )


def restore_config(out: Path, config: Mapping[str, Any], own_folders: Callable[[], Collection[str]]) -> None:
    """Write config.yaml again where it was removed from a run's folder.

    A stage's folder is called by the fingerprint of its settings, so names say whose the folder is: each must be one
    of `own_folders`, those of the stages of `config`; of reports older ones may stay. UserError where one is not.
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
    take_over: Callable[[Mapping[str, Any]], None] = lambda theirs: None,
) -> Iterator[None]:
    """Make `out` this process's for the block: locked, marked with its config.

    If a UserError ends the block in a folder that held no run before, what was written is removed again: bad input
    leaves nothing behind. Not so an UnfinishedError, or one after a finished stage, a checkpoint or a result. UserError
    when another process works here.

    When the folder is removed or renamed meanwhile, the block is ended with an UnfinishedError and what it still wrote
    under the old name is removed.

    `take_over` is given the config the folder had, before it is marked with this one.
    """
    first_missing = _first_missing(out)
    check_owner(out, config, accepted)
    had_lock = (out / RunFiles.LOCK).exists()
    with ExitStack() as stack:
        with _must_be_writable(out, first_missing):
            # `permcode status` holds it for a moment.
            stack.enter_context(exclusive_lock(out / RunFiles.LOCK, wait_s=_WAIT_FOR_STATUS_S))
        # Only the holder of the lock can tell what was here before it.
        was_free = not (out / RunFiles.CONFIG).exists()
        earlier = {entry.name for entry in out.iterdir() if had_lock or entry.name != RunFiles.LOCK}
        try:
            check_owner(out, config, accepted)
            if not was_free:
                take_over(read_config(out / RunFiles.CONFIG))
            with _must_be_writable(out, first_missing):
                for leftover in out.glob(_TEMPORARY_PATTERN):
                    leftover.unlink()
                _write_config(out / RunFiles.CONFIG, config)
            with _removal_is_user_error(out):
                yield
        except UserError as error:
            if was_free and not isinstance(error, UnfinishedError) and not _holds_work(out):
                _remove_new_entries(out, earlier)
                _remove_empty_folders(out, first_missing)
            raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that atomic writes of a killed process left anywhere below `folder`."""
    for path in folder.rglob(_TEMPORARY_PATTERN):
        if not path.is_dir():
            path.unlink(missing_ok=True)


@contextmanager
def _removal_is_user_error(out: Path) -> Iterator[None]:
    # The folder itself, not a file in it: a lock that somebody removed is no removed run. Held open, so that its number
    # is not given to a new folder.
    held = os.open(out, os.O_RDONLY | os.O_DIRECTORY)

    def is_gone() -> bool:
        try:
            return not os.path.samestat(os.stat(out), os.fstat(held))
        except FileNotFoundError:
            return True
        except OSError:  # a file system that does not answer says nothing about the folder
            return False

    # Not retryable: a scheduler that repeats the command would begin from nothing without anybody knowing.
    error = UnfinishedError(
        f"the output folder {out} was removed or renamed while this command worked in it: "
        "rename it back, or give the same command again to begin from nothing"
    )
    try:
        with watch_block(lambda: error if is_gone() else None, close=lambda: None):
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
    """What this command's processes wrote after `out` was gone; nothing else has these names."""
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
    """What a command may leave that was killed before it had marked the folder."""
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


def _first_missing(out: Path) -> Path | None:
    """The topmost folder that making `out` will make."""
    missing = [folder for folder in [out, *out.parents] if not folder.exists()]
    return missing[-1] if missing else None


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
    """Whether something in the folder took its time: a finished stage, a checkpoint, a job's result."""
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
    """Remove `out` and the folders made above it, up to the first that somebody put something into."""
    if first_missing is None:
        return
    for folder in [out, *out.parents]:
        try:
            folder.rmdir()
        except FileNotFoundError:  # it was never made
            pass
        except OSError:
            return
        if folder == first_missing:
            return
