"""The Python code of the running environment: standard library and pure-Python distributions."""

import json
import os
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from data_prep.sources.config import InstalledPythonConfig
from data_prep.sources.listed import ListedFile, plan_listed, unreadable
from data_prep.sources.units import WorkUnit, printable

# Our own code, however it was installed, is not part of the corpus.
_OWN_DISTRIBUTION = "permcode"
_STDLIB_LICENCE = "PSF-2.0"
_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})


def plan_installed_python(config: InstalledPythonConfig, source: str) -> list[WorkUnit]:
    """Return units of work. UserError when `exclude` leaves no file."""
    where = "the installed Python packages"
    return plan_listed(source, list_installed_python(), config.exclude, config.max_total_bytes, where)


def list_installed_python() -> list[ListedFile]:
    """Return every .py file of the standard library and of the pure-Python distributions.

    The repository is `python/<top-level module>` or the distribution's name. A path that several distributions list
    belongs to the first by name.
    """
    return [*_standard_library(), *_distributions()]


def _standard_library() -> Iterator[ListedFile]:
    root = Path(sysconfig.get_path("stdlib"))
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in _SKIPPED_FOLDERS)
        if Path(folder) == root:
            # Import names only: build folders such as config-3.11-x86_64-linux-gnu depend on the machine.
            subfolders[:] = [name for name in subfolders if name.isidentifier()]
        for name in sorted(names):
            path = Path(folder) / name
            relative = path.relative_to(root)
            if path.suffix == ".py" and not name.startswith("_sysconfigdata"):
                repository = f"python/{relative.parts[0].removesuffix('.py')}"
                file = _listed_file(path, repository, relative.as_posix(), _STDLIB_LICENCE)
                if file is not None:
                    yield file


def _distributions() -> Iterator[ListedFile]:
    seen: set[str] = set()
    folders = list(dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))))
    installed = {_name(found): found for found in distributions(path=folders) if _is_usable(found)}
    for name in sorted(installed):
        licence = _licence(installed[name])
        for listed in installed[name].files or ():
            path = listed.as_posix()
            if listed.suffix != ".py" or ".." in listed.parts or path in seen:
                continue
            seen.add(path)
            file = _listed_file(Path(str(installed[name].locate_file(listed))), name, path, licence)
            if file is not None:
                yield file


def _is_usable(distribution: Distribution) -> bool:
    if _name(distribution) in ("", _OWN_DISTRIBUTION):
        return False
    if "Root-Is-Purelib: true" not in (distribution.read_text("WHEEL") or ""):
        return False
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return not origin.get("dir_info", {}).get("editable", False)


def _name(distribution: Distribution) -> str:
    return (_field(distribution, "Name") or "").lower().replace("_", "-").replace(".", "-")


def _licence(distribution: Distribution) -> str | None:
    expression = _field(distribution, "License-Expression")
    if expression:
        return expression
    classifiers = distribution.metadata.get_all("Classifier") or []
    names = [c.split(" :: ")[-1] for c in classifiers if c.startswith("License :: ")]
    if names:
        return "; ".join(names)
    # Some distributions put the full text of the licence here.
    text = _field(distribution, "License") or ""
    return text if text and len(text) <= 100 and "\n" not in text else None


def _field(distribution: Distribution, name: str) -> str | None:
    # get_all, because indexing with a missing name is deprecated from Python 3.12 on.
    values = distribution.metadata.get_all(name)
    return str(values[0]) if values else None


def _listed_file(path: Path, repository: str, relative: str, licence: str | None) -> ListedFile | None:
    """Return the file, None if it is not on disk. Links are followed: the installer put them there."""
    place = os.path.realpath(path)
    name = printable(relative)
    try:
        status = os.stat(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ListedFile(repository, name, "", place, 0, "", licence, unreadable(error))
    return ListedFile(repository, name, "", place, status.st_size, str(status.st_mtime_ns), licence)
