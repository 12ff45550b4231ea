"""A small corpus, and prep of it without Ray."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.file_tasks import FileTask
from cluster.reporter import Reporter
from data_prep.config import PrepConfig
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.filters.config import FiltersConfig
from data_prep.sources.config import DirectoryConfig
from data_prep.stage import run_prep
from data_prep.text.decoding import DecodingConfig
from data_prep.tokenizers.config import TokenizerConfig

NUM_REPOSITORIES = 8
FILES_PER_REPOSITORY = 6


def source_text(repository: int, number: int) -> str:
    """Return a few dozen lines of Python that are unique to (repository, number)."""
    lines = [f'"""Module {number} of package {repository}."""', "", "import os", ""]
    for k in range(12):
        lines += [
            f"def function_{repository}_{number}_{k}(value, other_{k}):",
            f'    """Return the sum of value and {k}, naïvely – twice."""',
            f"    if value > {repository * 100 + number}:",
            f"        return value + other_{k}",
            "    return os.path.join(str(value), str(other))",
            "",
        ]
    return "\n".join(lines)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write eight packages of six modules, and one file for each rule to drop."""
    root = tmp_path / "corpus"
    for repository in range(NUM_REPOSITORIES):
        folder = root / f"package{repository}" / "src"
        folder.mkdir(parents=True)
        for number in range(FILES_PER_REPOSITORY):
            (folder / f"module{number}.py").write_text(source_text(repository, number), encoding="utf-8")
    bad = root / "package0" / "bad"
    bad.mkdir()
    filler = "value = compute(1, 2)\n" * 10
    (bad / "small.py").write_text("x = 1\n")
    (bad / "undecodable.py").write_bytes(filler.encode() + b"name = '\xff\xfe'\n")
    (bad / "long_line.py").write_text(filler + f"data = '{'a' * 2000}'\n")
    (bad / "long_lines.py").write_text(f"data = '{'a' * 150}'\n" * 10)
    (bad / "symbols.py").write_text("()\n" * 100)
    (bad / "python2.py").write_text(filler + "print 'hello'\n")
    (root / "package7" / "zz_copy.py").write_text(source_text(0, 0), encoding="utf-8")
    return root


@pytest.fixture
def config(corpus: Path) -> PrepConfig:
    """Small blocks and tars, so that there are several of each."""
    return PrepConfig(
        source=DirectoryConfig(path=str(corpus)),
        decoding=DecodingConfig(latin1="drop"),
        filters=FiltersConfig(parses=True),
        # The corpus is made by a formula, so that its files are much alike.
        near_duplicates=NearDuplicatesConfig(enabled=False),
        tokenizer=TokenizerConfig(vocab_size=460, sample_bytes=20_000),
        block_tokens=3000,
        shard_tokens=9000,
    )


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run tasks one after the other in this process, except those whose output exists."""

    def run(
        function: Callable[..., None],
        tasks: Sequence[FileTask],
        on_done: Callable[[FileTask], None],
        **options: object,
    ) -> None:
        for task in tasks:
            if not task.output.exists():
                function(*task.arguments, task.output)
            on_done(task)

    monkeypatch.setattr("data_prep.corpus.work.run_file_tasks", run)


@pytest.fixture
def prepared(config: PrepConfig, in_process: None, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A finished prep folder and its summary."""
    folder = tmp_path / "prep"
    return folder, run_prep(config, 0, folder, Reporter())
