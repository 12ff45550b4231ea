"""Rules that compare files, tested with the complete stage."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from cluster.reporter import Reporter
from data_prep.config import PrepConfig
from data_prep.decontamination.config import DecontaminationConfig, EvaluationSetConfig
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.finished.ledger import read_ledger
from data_prep.finished.prepared import open_prepared
from data_prep.sources.config import ColumnsConfig, JsonlConfig
from data_prep.stage import run_prep
from data_prep.steps.inputs import input_signature
from data_prep.text.licences import LicenceConfig
from tests.unit.pipeline.recording_reporter import RecordingReporter

pytestmark = pytest.mark.usefixtures("in_process")
PROSE = (
    "the quick brown fox jumps over one lazy dog while nine small owls watch from seven old trees near "
    "a river that winds through green hills toward some distant town where people sell bread and honey"
).split()


def story(first: int, num_words: int = 400) -> str:
    """Return words in a random order, so that stories with different `first` share few runs of words."""
    words = [
        PROSE[(first * 7 + i * (first + 3) + i * i) % len(PROSE)] + str((i * first) % 97)
        for i in range(num_words)
    ]
    return "".join(f"{a} = {b}\n" for a, b in zip(words[:-1], words[1:], strict=True))


def rows_by_path(folder: Path) -> dict[str, dict[str, Any]]:
    rows = read_ledger(folder / "ledger.parquet").to_pylist()
    return {f"{row['repository']}/{row['path']}": row for row in rows}


def test_of_near_copies_in_several_repositories_one_is_kept(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    for number in range(4):
        text = story(5) + f"marker_{number} = {number}\n" * number
        (corpus / f"package{number}" / "story.py").write_text(text, encoding="utf-8")
    (corpus / "package4" / "story.py").write_text(story(11), encoding="utf-8")
    config = config.model_copy(update={"near_duplicates": NearDuplicatesConfig(threshold=0.9)})
    run_prep(config, 0, tmp_path / "prep", Reporter())
    rows = rows_by_path(tmp_path / "prep")
    assert rows["package4/story.py"]["decision"] == "kept"
    stays = rows["package0/story.py"]
    assert stays["decision"] == "kept"
    for number in (1, 2, 3):
        copy = rows[f"package{number}/story.py"]
        assert (copy["rule"], copy["value"]) == ("near_duplicate", 4.0)
        assert copy["duplicate_of"] == "directory:package0:story.py"
        assert copy["cluster"] == stays["cluster"] == stays["id"]


def test_a_file_with_an_evaluation_item_is_dropped_and_named(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"task": "fox/1", "solution": story(5, 60)}) + "\n", encoding="utf-8")
    leaked = corpus / "package2" / "leaked.py"
    leaked.write_text("x = 1\n" * 30 + story(5, 60) + "y = 2\n" * 30, encoding="utf-8")
    sets = {
        "mine": EvaluationSetConfig(path=str(items), fields=("solution",), id_field="task"),
        "theirs": EvaluationSetConfig(path=str(tmp_path / "none.jsonl"), required=False),
    }
    watched = config.model_copy(update={"decontamination": DecontaminationConfig(sets=sets)})
    reporter = RecordingReporter()
    summary = run_prep(watched, 0, tmp_path / "prep", reporter)
    assert [line for line in reporter.lines if "continuing without" in line] == [
        f"prep: continuing without evaluation set theirs: no file at {tmp_path}/none.jsonl: correct its path"
    ]
    row = rows_by_path(tmp_path / "prep")["package2/leaked.py"]
    assert (row["rule"], row["detail"]) == ("contaminated", "mine/fox/1")
    assert summary["dropped_by_rule"]["contaminated"] == 1
    assert summary["evaluation_sets"] == {"kept_out": ["mine"], "missing": ["theirs"]}
    before = input_signature(watched)
    items.write_text(json.dumps({"task": "fox/1", "solution": story(6, 60)}) + "\n", encoding="utf-8")
    assert input_signature(watched) != before


def test_an_optional_set_is_used_as_it_was_when_prep_began(
    corpus: Path, config: PrepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = {}
    for number, name in enumerate(("first", "later")):
        (tmp_path / f"{name}.txt").write_text(story(5 + number, 60).replace("\n", " "), encoding="utf-8")
        text = "x = 1\n" * 30 + story(5 + number, 60) + "y = 2\n" * 30
        (corpus / "package2" / f"{name}.py").write_text(text, encoding="utf-8")
        sets[name] = EvaluationSetConfig(path=str(tmp_path / f"{name}.txt"), required=False)
    config = config.model_copy(update={"decontamination": DecontaminationConfig(sets=sets)})
    later = tmp_path / "later.txt"
    late_text = later.read_text(encoding="utf-8")
    later.unlink()
    before = input_signature(config)
    folder = tmp_path / "prep"

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr("data_prep.stage.split_corpus", kill)
        with pytest.raises(KeyboardInterrupt):
            run_prep(config, 0, folder, Reporter())
    later.write_text(late_text, encoding="utf-8")
    (tmp_path / "first.txt").rename(tmp_path / "aside")
    assert input_signature(config) == before
    with pytest.raises(UserError, match="evaluation set first .* is missing"):
        run_prep(config, 0, folder, Reporter())
    (tmp_path / "aside").rename(tmp_path / "first.txt")
    reporter = RecordingReporter()
    summary = run_prep(config, 0, folder, reporter)
    assert "prep: read and filter: resuming, 1 of 1 parts are done" in reporter.lines
    assert any("without evaluation set later: it did not exist when" in line for line in reporter.lines)
    assert summary["evaluation_sets"] == {"kept_out": ["first"], "missing": ["later"]}
    rows = rows_by_path(folder)
    assert rows["package2/first.py"]["rule"] == "contaminated"
    assert rows["package2/later.py"]["decision"] == "kept"
    (tmp_path / "first.txt").unlink()
    assert run_prep(config, 0, folder, Reporter()) == summary


def test_vendored_files_are_rows_of_the_ledger_and_counted(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    for name in ("package1/node_modules/a.py", "package1/node_modules/deep/b.py", "package2/build/c.py"):
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(story(len(name)), encoding="utf-8")
    summary = run_prep(config, 0, tmp_path / "prep", Reporter())
    assert summary["dropped_by_rule"]["vendored"] == 3
    row = rows_by_path(tmp_path / "prep")["package1/node_modules/deep/b.py"]
    assert (row["decision"], row["rule"], row["detail"]) == ("dropped", "vendored", "node_modules/")
    assert row["num_bytes"] == (corpus / "package1/node_modules/deep/b.py").stat().st_size


def test_a_repositorys_licence_file_applies_to_its_files(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    (corpus / "package3" / "COPYING").write_text(
        "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n\nEveryone is permitted to copy and distribute\n",
        encoding="utf-8",
    )
    (corpus / "package3" / "src" / "free.py").write_text(
        "# SPDX-License-Identifier: MIT\n" + story(9), encoding="utf-8"
    )
    run_prep(config, 0, tmp_path / "prep", Reporter())
    rows = rows_by_path(tmp_path / "prep")
    assert rows["package3/src/free.py"]["decision"] == "kept"
    assert rows["package3/src/free.py"]["licence"] == "MIT"
    assert rows["package3/src/module0.py"]["rule"] == "licence"
    assert rows["package1/src/module0.py"]["decision"] == "kept"
    careful = config.model_copy(update={"licences": LicenceConfig(unknown="drop")})
    run_prep(
        careful.model_copy(update={"split": config.split.model_copy(update={"by": "file"})}),
        0,
        *_more(corpus, tmp_path),
    )
    rows = rows_by_path(tmp_path / "careful")
    assert {row["licence"] for row in rows.values() if row["decision"] == "kept"} == {"MIT"}


def test_the_nearest_licence_file_above_a_file_applies_to_it(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    tag = "SPDX-License-Identifier: "
    files = {
        "package1/LICENSE": f"{tag}MIT\n",
        "package1/parts/g/LICENSE": f"{tag}GPL-3.0-only\n",
        "package1/parts/g/deep/g.py": story(20),
        "package1/parts/own.py": story(21),
        "package1/secret.py": f"# {tag}LicenseRef-Proprietary\n" + story(22),
        "package1/closed/LICENSE": "All rights reserved.\n",
        "package1/closed/closed.py": story(23),
        "package1/docs/NOTICE": "With work of others.\n",
        "package1/docs/conf.py": story(24),
        "package2/parts/lib/LICENSE": f"{tag}MIT\n",
        "package2/parts/lib/lib.py": story(25),
        "package3/lib-1.0.dist-info/licenses/LICENSE": f"{tag}ISC\n",
        "package4/LICENSE": "All rights reserved.\n",
        "package4/COPYING.LIB": f"{tag}Zlib\n",
    }
    for name, text in files.items():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(text, encoding="utf-8")
    run_prep(config, 0, tmp_path / "prep", Reporter())
    rows = rows_by_path(tmp_path / "prep")
    assert {name: rows[name]["licence"] for name in rows if name in files and name.endswith(".py")} == {
        "package1/parts/g/deep/g.py": "GPL-3.0-only",
        "package1/parts/own.py": "MIT",
        "package1/secret.py": None,
        "package1/closed/closed.py": None,
        "package1/docs/conf.py": "MIT",
        "package2/parts/lib/lib.py": "MIT",
    }
    of_modules = [rows[f"package{number}/src/module0.py"]["licence"] for number in range(6)]
    assert of_modules == [None, "MIT", None, "ISC", "Zlib", None]
    assert rows["package1/parts/g/deep/g.py"]["rule"] == "licence"


def test_a_declared_unknown_licence_is_not_replaced_by_the_repositorys(
    config: PrepConfig, tmp_path: Path
) -> None:
    declared = {"MIT": "MIT", "Proprietary": None, "NOASSERTION": "Zlib", None: "Zlib"}
    records = [
        {"content": "SPDX-License-Identifier: Zlib\n", "path": "LICENSE", "repository": "r"},
        *(
            {"content": story(30 + n), "path": f"{n}.py", "repository": "r", "licence": name}
            for n, name in enumerate(declared)
        ),
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    columns = ColumnsConfig(repository="repository", path="path", licence="licence")
    source = JsonlConfig(urls=(str(tmp_path / "x.jsonl"),), columns=columns)
    split = config.split.model_copy(update={"by": "file"})
    run_prep(config.model_copy(update={"source": source, "split": split}), 0, tmp_path / "prep", Reporter())
    rows = rows_by_path(tmp_path / "prep")
    assert [rows[f"r/{n}.py"]["licence"] for n in range(len(declared))] == list(declared.values())


def test_the_licence_of_a_dropped_licence_file_still_applies(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    name = "SPDX-License-Identifier: GPL-3.0-only\n"
    (corpus / "package3" / "LICENSE").write_text(name, encoding="utf-8")
    (corpus / "package4" / "COPYING").write_bytes(name.encode() + b"by \xfe\xff \xc3\x81\x90 " * 20)
    source = config.source.model_copy(update={"suffixes": (".py",)})
    run_prep(config.model_copy(update={"source": source}), 0, tmp_path / "prep", Reporter())
    rows = rows_by_path(tmp_path / "prep")
    for package, licence_file in (("package3", "LICENSE"), ("package4", "COPYING")):
        assert rows[f"{package}/{licence_file}"]["rule"] == "suffix"
        row = rows[f"{package}/src/module0.py"]
        assert (row["licence"], row["rule"]) == ("GPL-3.0-only", "licence")
    run_prep(config, 0, tmp_path / "all", Reporter())
    rows = rows_by_path(tmp_path / "all")
    assert rows["package3/LICENSE"]["rule"] == "file_size"
    assert rows["package4/COPYING"]["rule"] == "decodable"
    assert rows["package3/src/module0.py"]["licence"] == "GPL-3.0-only"
    assert rows["package4/src/module0.py"]["licence"] == "GPL-3.0-only"


def _more(corpus: Path, tmp_path: Path) -> tuple[Path, Reporter]:
    """Write two more licensed files, so that there are three to split."""
    for number in (20, 21):
        text = "# SPDX-License-Identifier: MIT\n" + story(number)
        (corpus / "package1" / f"free{number}.py").write_text(text, encoding="utf-8")
    return tmp_path / "careful", Reporter()


def test_imported_files_come_before_those_that_import_them(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    package = corpus / "package5" / "src"
    (package / "aaa.py").write_text("from src import zzz\n" + story(8), encoding="utf-8")
    (package / "zzz.py").write_text(story(10), encoding="utf-8")
    for order, expected in (("dependency", ["zzz.py", "aaa.py"]), ("path", ["aaa.py", "zzz.py"])):
        ordered = config.model_copy(
            update={"order": config.order.model_copy(update={"within_repository": order})}
        )
        run_prep(ordered, 0, tmp_path / order, Reporter())
        prepared = open_prepared(tmp_path / order)
        names = [
            meta.path.rpartition("/")[2]
            for split in ("train", "validation", "test")
            for entry in prepared.blocks(split)
            for meta in prepared.read_block(entry).docs
        ]
        assert [name for name in names if name in expected] == expected


def test_secrets_are_removed_from_the_shards_and_counted_in_the_ledger(
    corpus: Path, config: PrepConfig, tmp_path: Path
) -> None:
    secret = "ghp_" + "k3Jf9sLq0Zx7Vb2Nm5Tc8Rw1Yd4Hg6Pa0QeU"
    text = story(12) + f'clone("{secret}")\nauthor = "jane.roe@corporate-mail.io"\n'
    (corpus / "package1" / "secret.py").write_text(text, encoding="utf-8")
    run_prep(config, 0, tmp_path / "prep", Reporter())
    row = rows_by_path(tmp_path / "prep")["package1/secret.py"]
    assert row["redactions"] == "email:1 service_token:1"
    prepared = open_prepared(tmp_path / "prep")
    for split in ("train", "validation", "test"):
        for entry in prepared.blocks(split):
            block = prepared.read_block(entry)
            texts = prepared.tokenizer.decode(block.tokens)
            assert secret not in texts
            assert "jane.roe" not in texts
