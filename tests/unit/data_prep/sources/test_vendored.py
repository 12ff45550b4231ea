"""Vendored code in folders and git repositories becomes rows that name the rule."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.documents import RawFile
from data_prep.sources.config import DirectoryConfig, GitConfig
from data_prep.sources.plan import plan_units
from data_prep.sources.vendored import FOLDERS, Neighbours, vendored_by
from tests.unit.data_prep.sources.reading import read_all, rule_of

_OWN = (
    *(
        "src/app.py",
        "lib/core/cache/store.py",
        "tests/fixtures/case.py",
        "src/builder/vendoring.py",
        "build.py",
    ),
    *(
        "node_modules.py",
        "src/lib/deps/graph.py",
        "Jenkinsfile",
        "src/reactor.js",
        "d3_helpers.js",
        "types.d.ts",
    ),
    *("src/build/__init__.py", "src/virtualenv/run.py", "Lib/venv/__init__.py", "src/go/build/build.go"),
    *(
        "src/cmd/dist/main.go",
        "web/build/tool.js",
        "packages/core/index.js",
        "src/env/wrapper.py",
        ".github/workflows/x.yml",
        "configure.py",
        "LICENSE",
    ),
)
_VENDORED = (
    *("node_modules/left-pad/index.js", "web/node_modules/@types/node/LICENSE", "vendor/github.com/x/y.go"),
    *("src/third_party/zlib/inflate.c", "thirdparty/a.cpp", "lib/python3.11/site-packages/six.py"),
    *(
        ".venv/bin/activate_this.py",
        "venv/x.py",
        "build/lib/app.py",
        "dist/bundle.js",
        "pip/_vendor/six.py",
    ),
    *("Godeps/_workspace/src/a.go", "deps/v8/a.cc", "debian/rules", "bower_components/jquery/a.js"),
    *(
        "static/jquery.js",
        "static/jquery-3.6.0.min.js",
        "js/jquery-ui-1.12.1.js",
        "css/bootstrap.css",
        "js/d3.v5.js",
    ),
    *(
        "js/jquery.validate.js",
        "js/app.min.js",
        "js/react-dom.js",
        "gradlew",
        "configure",
        "docs/_static/x.js",
    ),
)


@pytest.mark.parametrize("path", _OWN)
def test_own_code_is_not_vendored(path: str) -> None:
    assert vendored_by(path, Neighbours()) is None


@pytest.mark.parametrize("path", _VENDORED)
def test_code_of_others_is_vendored(path: str) -> None:
    assert vendored_by(path, Neighbours()) is not None


_name = st.text(st.sampled_from("abz_.-/"), min_size=1, max_size=12).filter(lambda name: name not in FOLDERS)


@given(
    st.lists(_name.filter(lambda name: "/" not in name), max_size=4), st.sampled_from(sorted(FOLDERS)), _name
)
def test_all_below_a_vendored_folder_is_vendored_at_any_depth(
    above: list[str], folder: str, below: str
) -> None:
    assert vendored_by("/".join((*above, folder, below)), Neighbours()) is not None
    # A file of that name is no folder, and a name that only contains it is another one.
    assert vendored_by(f"src/{folder}", Neighbours()) is None
    assert vendored_by(f"src/my{folder}s2/a.py", Neighbours()) is None


def _write(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content of {name}\n")
    return root


def _in_memory(root: Path) -> str:
    """Return the URL of a copy in fsspec's memory file system."""
    system = fsspec.filesystem("memory")
    for path in root.rglob("*"):
        if path.is_file():
            system.pipe(f"/vendored{path}", path.read_bytes())
    return f"memory://vendored{root}"


def _summarize(files: list[RawFile]) -> dict[str, tuple[str | None, bool]]:
    return {f"{f.repository}/{f.path}": (rule_of(f), f.data is not None) for f in files}


@pytest.mark.parametrize("repository", [None, "mine"])
def test_every_vendored_file_of_a_folder_is_a_row_that_names_the_sign(
    tmp_path: Path, repository: str | None
) -> None:
    root = _write(tmp_path / "trees" / "project", (*_OWN, *_VENDORED))
    path = root.parent if repository is None else root
    files = read_all(DirectoryConfig(path=str(path), repository=repository))
    assert Counter(rule_of(file) for file in files) == {None: len(_OWN), "vendored": len(_VENDORED)}
    (row,) = [file for file in files if file.path.endswith("left-pad/index.js")]
    assert row.rejection is not None
    assert row.rejection.detail == "node_modules/"
    assert row.num_bytes == len("content of node_modules/left-pad/index.js\n")
    assert row.data is None


def test_keep_vendored_keeps_vendored_code(tmp_path: Path) -> None:
    root = _write(tmp_path, (*_OWN, *_VENDORED))
    files = read_all(DirectoryConfig(path=str(root), keep_vendored=True))
    assert {rule_of(file) for file in files} == {None}


@pytest.mark.parametrize("above", ["vendor/project", "lib/site-packages", "node_modules", "build/deps"])
def test_folders_above_the_source_do_not_count(tmp_path: Path, above: str) -> None:
    root = _write(tmp_path / above, ("package/code.py", "package/_vendor/six.py", "Sparkle/a.py"))
    assert _summarize(read_all(DirectoryConfig(path=str(root)))) == {
        "package/code.py": (None, True),
        "package/_vendor/six.py": ("vendored", False),
        "Sparkle/a.py": (None, True),
    }


_TAKEN_NAMES = ("build", "dist", "virtualenv", "venv", "external", "vendor", "third_party", "deps", "debian")


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_repository_may_have_the_name_of_a_vendored_folder(tmp_path: Path, is_remote: bool) -> None:
    names = tuple(f"{name}/src/{name}/__init__.py" for name in _TAKEN_NAMES)
    left = ("build/build/lib/a.py", "vendor/vendor/a.go", "node_modules/src/a.js", ".venv/src/a.py")
    root = _write(tmp_path, (*names, *left, "env/pyvenv.cfg", "env/bin/activate_this.py"))
    path = _in_memory(root) if is_remote else str(root)
    assert _summarize(read_all(DirectoryConfig(path=path))) == {
        **{name: ("vendored", False) for name in (*left, "env/pyvenv.cfg", "env/bin/activate_this.py")},
        **{
            name: (None, True)
            if name.split("/")[2] not in ("external", "vendor", "third_party")
            else ("vendored", False)
            for name in names
        },
    }


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("mark", ["pyproject.toml", ".git/HEAD", "Makefile", None])
def test_a_folder_that_is_one_repository_has_a_build_and_not_a_repository_of_that_name(
    tmp_path: Path, mark: str | None, is_remote: bool
) -> None:
    root = _write(
        tmp_path,
        ("src/a.py", "build/a.py", "external/b.py", "deps/c.py", "src/build/d.py", *filter(None, [mark])),
    )
    repository = None if mark else "mine"
    path = _in_memory(root) if is_remote else str(root)
    found = _summarize(read_all(DirectoryConfig(path=path, repository=repository)))
    dropped = {name.removeprefix("mine/") for name, (rule, _) in found.items() if rule == "vendored"}
    assert dropped == {"build/a.py", "external/b.py", "deps/c.py"}


def test_a_package_named_build_is_no_build_and_an_environment_may_have_any_name(
    tmp_path: Path,
) -> None:
    own = ("one/build/__init__.py", "one/build/env/sub.py", "two/dist/main.go", "three/venv/__init__.py")
    own += ("made_in_place/pyvenv.cfg", "made_in_place/setup.py", "made_in_place/app.py")
    other = (
        "one/dist/a.py",
        "two/build/lib/one/__init__.py",
        "two/tools/env/pyvenv.cfg",
        "two/tools/env/b.py",
    )
    root = _write(tmp_path, (*own, *other))
    expected = dict.fromkeys(own, (None, True)) | dict.fromkeys(other, ("vendored", False))
    files = read_all(DirectoryConfig(path=str(root)))
    assert _summarize(files) == expected
    details = {file.path: file.rejection.detail for file in files if file.rejection is not None}
    assert details["tools/env/b.py"] == "env/pyvenv.cfg"


def test_patterns_begin_at_the_roots_of_repositories(tmp_path: Path) -> None:
    root = _write(tmp_path, ("one/deps/zlib.c", "one/src/deps/own.c"))
    assert _summarize(read_all(DirectoryConfig(path=str(root)))) == {
        "one/deps/zlib.c": ("vendored", False),
        "one/src/deps/own.c": (None, True),
    }


def test_exclude_and_links_keep_their_rules_and_suffixes_do_not(tmp_path: Path) -> None:
    root = _write(
        tmp_path, ("a/vendor/x.py", "a/vendor/y.txt", "a/vendor/LICENSE", "a/notes.txt", "b/vendor/z.py")
    )
    (root / "a" / "vendor" / "link.py").symlink_to("x.py")
    (root / "a" / "own.py").write_text("own")
    files = read_all(DirectoryConfig(path=str(root), suffixes=(".py",), exclude=("b",)))
    assert _summarize(files) == {
        "a/vendor/x.py": ("vendored", False),
        "a/vendor/y.txt": ("vendored", False),
        "a/vendor/LICENSE": ("vendored", False),
        "a/vendor/link.py": ("link", False),
        "a/notes.txt": ("suffix", False),
        "a/own.py": (None, True),
        "b/vendor/z.py": ("excluded", False),
    }


def test_vendored_files_use_no_budget(tmp_path: Path) -> None:
    root = _write(tmp_path, ("a/own.py", *(f"a/node_modules/{n}.js" for n in range(9))))
    num_bytes = len("content of a/own.py\n")
    files = read_all(DirectoryConfig(path=str(root), max_total_bytes=num_bytes))
    assert [file.path for file in files if file.data is not None] == ["own.py"]


def test_the_error_for_a_folder_of_only_vendored_code_says_how_to_keep_it(tmp_path: Path) -> None:
    _write(tmp_path, ("node_modules/x.py", "node_modules/y.py"))
    with pytest.raises(UserError, match="2 vendored .`keep_vendored: true` keeps them."):
        plan_units(DirectoryConfig(path=str(tmp_path)))


def test_vendored_code_of_git_repositories_is_dropped_unless_kept(tmp_path: Path) -> None:
    own = ("src/a.py", "src/build/__init__.py", "build/main.go", "docs/x.md")
    folder = _write(tmp_path / "vendor" / "code", (*own, "vendor/six.py", "deps/z.c", "dist/y.py"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(folder), *identity, *command], env=environment, check=True)
    config = GitConfig(path=(str(folder),), exclude=("docs/*",))
    expected = {
        "code/src/a.py": (None, True),
        "code/src/build/__init__.py": (None, True),
        "code/build/main.go": (None, True),
        "code/dist/y.py": ("vendored", False),
        "code/vendor/six.py": ("vendored", False),
        "code/deps/z.c": ("vendored", False),
        "code/docs/x.md": ("excluded", False),
    }
    assert _summarize(read_all(config)) == expected
    kept = read_all(config.model_copy(update={"keep_vendored": True}))
    others = ("code/vendor/six.py", "code/deps/z.c", "code/dist/y.py")
    assert _summarize(kept) == expected | dict.fromkeys(others, (None, True))
