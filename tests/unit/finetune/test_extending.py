"""docs/extending.md is followed literally: its file and its line are added to a copy of the package, and used."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_system_of_the_page_works_once_its_file_and_its_line_are_added(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    new_file, use = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    line, printed = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    for package in ("cluster", "data_prep", "pretrain"):
        (tmp_path / package).symlink_to(ROOT / package)
    shutil.copytree(ROOT / "finetune", tmp_path / "finetune", ignore=shutil.ignore_patterns("__pycache__"))
    match = re.search(r"The file is `(finetune/systems/\S+\.py)`", page)
    assert match is not None
    path = tmp_path / match[1]
    assert not path.exists()
    path.write_text(new_file, encoding="utf-8")
    kinds = tmp_path / "finetune" / "experiment" / "kinds.py"
    before = kinds.read_text(encoding="utf-8")
    after = before.replace("_SYSTEMS = (\n", "_SYSTEMS = (\n" + line)
    assert after != before
    assert line.count("\n") == 1
    kinds.write_text(after, encoding="utf-8")

    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", use],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == printed, done.stderr
