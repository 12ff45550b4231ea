"""The corpus of installed Python code."""

from pathlib import Path

from data_prep.sources.config import InstalledPythonConfig
from data_prep.sources.installed_python import list_installed_python
from data_prep.sources.listed import ListedReader
from data_prep.sources.plan import plan_units


def test_the_library_and_pure_distributions_are_listed() -> None:
    files = list_installed_python()
    by_repository = {file.repository: file for file in files}
    assert by_repository["python/asyncio"].licence == "PSF-2.0"
    assert any(file.repository == "python/ast" and file.path == "ast.py" for file in files)
    assert {"pytest", "typer", "fsspec"} <= set(by_repository)
    assert by_repository["pytest"].licence is not None
    # Not pure Python; ourselves.
    assert not {"numpy", "permcode"} & set(by_repository)
    assert not any(file.repository.startswith("python/site") and "packages" in file.path for file in files)
    assert not any(Path(file.path).is_absolute() or ".." in file.path.split("/") for file in files)


def test_each_file_is_planned_once_in_order() -> None:
    units = plan_units(InstalledPythonConfig(exclude=("python/test",)))
    files = [file for unit in units if isinstance(unit.reader, ListedReader) for file in unit.reader.files]
    names = [(file.repository, file.path) for file in files]
    assert names == sorted(set(names))
    assert {file.repository for file in files if file.rejection is not None} == {"python/test"}
    assert {unit.source for unit in units} == {"installed_python"}
