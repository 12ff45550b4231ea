import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from cluster.config import Config
from cluster.errors import UserError
from cluster.storage import (
    atomic_file,
    exclusive_lock,
    fingerprint,
    is_locked,
    read_document,
    read_json,
    sha256_bytes,
    sha256_file,
    write_bytes,
    write_document,
    write_json,
)


def test_json_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "new" / "value.json"
    write_json(path, {"b": [1, 2.5], "a": "Grüße"})
    assert read_json(path) == {"a": "Grüße", "b": [1, 2.5]}
    path.write_text("{")
    with pytest.raises(UserError, match=r"value\.json is damaged"):
        read_json(path)


def test_error_while_writing_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def write_half() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_two_threads_can_write_one_file(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "file") as first, atomic_file(tmp_path / "file") as second:
        first.write(b"first")
        second.write(b"second")
        assert len(list(tmp_path.glob(".file.*.tmp"))) == 2
    assert (tmp_path / "file").read_bytes() == b"first"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_config_takes_finite_numbers_only(value: float) -> None:
    class Rate(Config):
        rate: float

    with pytest.raises(ValidationError, match="finite"):
        Rate(rate=value)


def test_a_full_disk_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("cluster.storage.os.fsync", full)
    with pytest.raises(UserError, match="disk full while writing .*file"):
        write_bytes(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


def test_checksums_agree_and_fingerprints_ignore_key_order(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    write_bytes(tmp_path / "data", data)
    assert sha256_file(tmp_path / "data") == sha256_bytes(data)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_lock_is_exclusive_and_dies_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "out" / ".lock"
    code = (
        "import sys, time; from pathlib import Path; from cluster.storage import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="in use by another permcode process"), exclusive_lock(lock):
            pass
        holder.kill()
    with exclusive_lock(lock):
        pass


def test_a_held_lock_is_seen_as_locked(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not is_locked(path)
    with exclusive_lock(path):
        assert is_locked(path)
    assert not is_locked(path)
    with exclusive_lock(path):
        pass


def test_a_document_is_read_without_its_checksum_whatever_its_keys_are(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    write_document(path, {"b": 1.5, "a": {10: "ä", 9: [None, True]}})
    assert read_document(path) == {"a": {"10": "ä", "9": [None, True]}, "b": 1.5}
    path.write_text(json.dumps(json.loads(path.read_text())))  # another layout, the same content
    assert read_document(path) == {"a": {"10": "ä", "9": [None, True]}, "b": 1.5}


def test_a_flipped_bit_of_a_document_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    value = {"steps": 1200, "share": 0.25, "name": "left to right", "files": {"a": {"bytes": 7}}}
    write_document(path, value)
    data, messages = path.read_bytes(), []
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            assert read_document(path, "restore it") == value  # as of white space
        except UserError as error:
            messages.append(str(error))
    assert len(messages) > 0.7 * 8 * len(data)
    for message in messages:
        assert message.startswith(f"{path} is damaged (")
        assert message.endswith(": restore it")


def test_a_document_without_a_checksum_is_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text('{"a": 1}')
    assert read_document(path) == {"a": 1}
    path.write_text("[1]")
    with pytest.raises(UserError, match="is damaged .not a JSON object.: remove it"):
        read_document(path)
