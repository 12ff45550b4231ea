"""Measure recall on generated secrets and false positives on real code: ours and detect-secrets', same files.

    python -m benchmarks.prep_secrets --peer .venv-bench/bin/python --code /usr/lib/python3.11

The secrets are those of the unit tests with another seed, one per file. Every find in `--code` is counted by kind:
the standard library contains no secret, but it does contain addresses of people and hosts. Standard library only at
import, because the peer's environment runs this too, with `--scan`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

_SEED = 2026
_ROUNDS = 10


def peer_finds(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the finds of detect-secrets with its default plugins and filters: (type, value) by file."""
    from detect_secrets import SecretsCollection  # type: ignore[import-not-found, unused-ignore]
    from detect_secrets.settings import default_settings  # type: ignore[import-not-found, unused-ignore]

    finds: dict[str, list[tuple[str, str]]] = {}
    with default_settings():
        for path in code_files(folder):
            collection = SecretsCollection()
            collection.scan_file(str(path))
            finds[str(path)] = [(secret.type, secret.secret_value or "") for _, secret in collection]
    return finds


def code_files(folder: Path) -> list[Path]:
    """Return all files below the folder, without installed packages and binary files."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and _is_code(path.relative_to(folder)))


def _is_code(path: Path) -> bool:
    return "site-packages" not in path.parts and path.suffix not in (
        ".pyc",
        ".so",
        ".a",
        ".gif",
        ".exe",
        ".o",
    )


def run_peer(python: str, folder: Path) -> tuple[dict[str, list[tuple[str, str]]], float]:
    """Return the peer's finds and its CPU seconds."""
    command = [python, "-m", "benchmarks.prep_secrets", "--scan", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    return answer["finds"], answer["seconds"]


def recall(python: str | None) -> None:
    """Print by family the number of secrets, those that we find and those that the peer finds."""
    from data_prep.secrets.redact import redact
    from tests.unit.data_prep.secrets.vectors import all_vectors

    num: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    peers: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        files = {}
        for number, vector in enumerate(all_vectors(_SEED, _ROUNDS)):
            path = Path(name, str(number), vector.path)
            path.parent.mkdir()
            path.write_text(vector.text)
            files[str(path)] = vector
            num[vector.family] += 1
            ours[vector.family] += (
                vector.secret.encode() not in redact(vector.text.encode(), vector.path).data
            )
        finds = run_peer(python, Path(name))[0] if python else {}
        for path_name, vector in files.items():
            # For a private key it reports the header.
            peers[vector.family] += any(
                value and (value in vector.secret or vector.secret in value) or kind == "Private Key"
                for kind, value in finds.get(path_name, ())
            )
    for family in sorted(num):
        print(f"{family:20} {num[family]:6} {ours[family]:6} {peers[family]:6}")
    print(f"{'all':20} {num.total():6} {ours.total():6} {peers.total():6}")


def false_positives(code: Path, python: str | None) -> None:
    """Print finds by kind and million bytes per CPU second, ours and the peer's."""
    from data_prep.secrets.redact import redact

    files = [(str(path.relative_to(code)), path.read_bytes()) for path in code_files(code)]
    num_bytes = sum(len(data) for _, data in files)
    counts: Counter[str] = Counter()
    start_s = time.process_time()
    for path_name, data in files:
        counts.update(dict(redact(data, path_name).counts))
    print(f"ours: {num_bytes / 1e6 / (time.process_time() - start_s):.1f} MB/s, {dict(counts.most_common())}")
    if python:
        finds, seconds = run_peer(python, code)
        by_type: dict[str, int] = defaultdict(int)
        for found in finds.values():
            for kind, _ in found:
                by_type[kind] += 1
        print(f"detect-secrets: {num_bytes / 1e6 / seconds:.2f} MB/s, {dict(by_type)}")


def main() -> None:
    """Print both tables; with `--scan`, run as the peer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", help="the Python of an environment with detect-secrets")
    parser.add_argument("--code", type=Path, help="code without secrets")
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scan:
        start_s = time.process_time()
        finds = peer_finds(options.scan)
        json.dump({"finds": finds, "seconds": time.process_time() - start_s}, sys.stdout)
        return
    recall(options.peer)
    if options.code:
        false_positives(options.code, options.peer)


if __name__ == "__main__":
    main()
