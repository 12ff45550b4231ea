"""Redaction is idempotent, deterministic, linear in time, and does not break the syntax around it."""

import ast
import configparser
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.secrets.redact import redact
from tests.unit.data_prep.secrets.vectors import all_vectors

_VECTORS = all_vectors(seed=3, rounds=1)
_PATHS = ("", "a.py", "a.yaml", "a.sh", "a.html", "a.go", "a.cpp", "package-lock.json")
_SCRAPS = [vector.text.rstrip("\n") for vector in _VECTORS] + [vector.secret for vector in _VECTORS]
_SCRAPS += [
    '"',
    "'",
    "@",
    ".",
    ":",
    "://",
    "=",
    " ",
    "\n",
    "\\",
    "<",
    ">",
    "key",
    "password",
    "secret",
    "user",
]
_SCRAPS += [
    "`",
    "\\`",
    "\\'",
    '\\"',
    ":=",
    "=>",
    "b",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "$",
    "#",
    ";",
    ",",
    "--",
    "ñ",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(_SCRAPS), max_size=12), st.sampled_from(_PATHS))
def test_redacting_twice_changes_nothing(scraps: list[str], path: str) -> None:
    once = redact("".join(scraps).encode(), path)
    twice = redact(once.data, path)
    assert twice.data == once.data
    assert twice.counts == ()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(_PATHS))
def test_any_bytes_are_accepted(data: bytes, path: str) -> None:
    redacted = redact(data, path)
    assert redact(redacted.data, path).data == redacted.data
    assert bool(redacted.counts) == (redacted.data != data)


def test_every_process_gives_the_same() -> None:
    program = (
        "import sys; from data_prep.secrets.redact import redact; "
        "r = redact(sys.stdin.buffer.read(), 'a.py'); print(r.counts, r.data)"
    )
    text = "".join(vector.text for vector in _VECTORS).encode()
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=text,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_redacted_python_still_parses() -> None:
    folder = Path(ast.__file__).parent
    changed = 0
    for path in [*folder.glob("*.py"), *(folder / "email").glob("*.py"), *(folder / "urllib").glob("*.py")]:
        redacted = redact(path.read_bytes(), path.name)
        if redacted.counts:
            changed += 1
            ast.parse(redacted.data)
    assert changed > 10


def test_redacted_vectors_still_parse() -> None:
    for vector in _VECTORS:
        data = redact(vector.text.encode(), vector.path).data
        if vector.path.endswith(".py"):
            ast.parse(data)
        elif vector.path.endswith(".json"):
            json.loads(data)
        elif vector.path.endswith(".yaml"):
            assert isinstance(yaml.safe_load(data), dict)
        elif vector.path.endswith(".ini"):
            configparser.ConfigParser(interpolation=None).read_string(data.decode())


def test_json_in_a_string_in_json_still_loads() -> None:
    inner = json.dumps({"password": "k3Rt!pLm9", "mail": "jane@physics.edu"})
    redacted = redact(json.dumps({"body": inner}).encode(), "a.json")
    assert json.loads(json.loads(redacted.data)["body"]) == {"password": "<PASSWORD>", "mail": "<EMAIL>"}
    assert redacted.counts == (("email", 1), ("password", 1))


def test_redacted_markup_and_scripts_still_parse() -> None:
    secrets = "<a mail='jane@physics.edu' password='k3Rt!pLm9'><b>93.184.216.34 jane@physics.edu</b></a>"
    page = redact(secrets.encode(), "a.xml")
    assert dict(page.counts) == {"email": 2, "ip_address": 1, "password": 1}
    ElementTree.fromstring(page.data)
    script = redact(b"export DB_PASSWORD=k3RtpLm9; ping 93.184.216.34 | mail jane@physics.edu\n", "a.sh")
    assert dict(script.counts) == {"email": 1, "ip_address": 1, "password": 1}
    subprocess.run(["bash", "-n"], input=script.data, check=True)


def test_markup_and_shell_get_no_angle_brackets() -> None:
    assert redact(b"<a href='mailto:jane@physics.edu'>", "a.html").data == b"<a href='mailto:[EMAIL]'>"
    assert redact(b"export DB_PASSWORD=k3RtpLm9\n", "a.sh").data == b"export DB_PASSWORD=[PASSWORD]\n"


_HOSTILE = [
    b"a", b'"', b"@", b"0-9.", b"0", b"1.", b"1.2.3.", b'"a', b"a@a.", b"a@", b'key="', b"key=", b"password=",
    b"eyJ", b"eyJa.", b"://", b"://a:", b"BEGIN PRIVATE KEY", b"A" * 16 + b"\n", b"sk-", b"ghp_", b"2001::",
    b"Basic ", b"2001:", b'secret"a";', b'"=="', b"\\", b"'", b".aaaaaa." + b"a" * 27, b"accountkey=", b'"a1B2c3D4',
    b"\n", b"\xff", b"key" * 8 + b"=", b"pwd:\t", b"a" * 32 + b"-us1", b"x == password ", b"PuTTY-User-Key-File-2",
]  # fmt: skip
_SMALL_BYTES = 8192
_FACTOR = 8
# Eight times the bytes may take eight times as long; the rest is for a shared machine's noise. Quadratic is 64.
_MAX_RATIO = 24
_NOISE_S = 0.01


@pytest.mark.parametrize("path", ["a.py", "a.yaml"])
def test_adversarial_input_takes_time_in_proportion_to_its_size(path: str) -> None:
    def seconds(piece: bytes, num_bytes: int) -> float:
        data = (piece * (num_bytes // len(piece) + 1))[:num_bytes]
        start = time.process_time()
        redact(data, path)
        return time.process_time() - start

    for piece in _HOSTILE:
        small, large = seconds(piece, _SMALL_BYTES), seconds(piece, _SMALL_BYTES * _FACTOR)
        assert large <= _MAX_RATIO * max(small, _NOISE_S), piece
