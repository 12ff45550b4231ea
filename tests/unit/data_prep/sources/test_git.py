"""Git repositories."""

import os
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from cluster.errors import UserError
from data_prep.sources import git as git_program
from data_prep.sources.config import GitConfig
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import plan_units, read_unit
from tests.unit.data_prep.sources.reading import read_all, rule_of, texts


def _git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    _git(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text("first\n")
    (folder / "sub" / "b.py").write_text("b\n")
    (folder / "empty.py").write_text("")
    (folder / "new\nline.py").write_text("n\n")
    with open(os.fsencode(folder) + b"/\xff.py", "w") as file:
        file.write("odd\n")
    (folder / "link.py").symlink_to("/etc/passwd")
    _git(folder, "add", "-A")
    _git(folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    _git(folder, "commit", "-q", "-m", "one")
    _git(folder, "tag", "v1")
    (folder / "a.py").write_text("second\n")
    _git(folder, "commit", "-q", "-m", "two", "a.py")
    (folder / "a.py").write_text("not committed\n")
    return folder


def test_files_of_a_revision_links_and_submodules(repository: Path) -> None:
    files = read_all(GitConfig(path=(str(repository),)))
    assert {(f.path, f.data, rule_of(f)) for f in files} == {
        ("a.py", b"second\n", None),
        ("sub/b.py", b"b\n", None),
        ("empty.py", b"", None),
        ("new\nline.py", b"n\n", None),
        ("\\xff.py", b"odd\n", None),
        ("link.py", None, "link"),
        ("module", None, "submodule"),
    }
    assert {file.repository for file in files} == {"code"}
    assert texts(read_all(GitConfig(path=(str(repository),), revision="v1")))["code", "a.py"] == b"first\n"


def test_bare_repositories_and_patterns(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    for name in ("one.git", "two.git"):
        _git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / "bare" / name))
    files = read_all(GitConfig(path=(str(tmp_path / "bare" / "*"),), exclude=("sub/*",)))
    assert {file.repository for file in files} == {"one", "two"}
    assert texts(files)["two", "a.py"] == b"second\n"
    assert {file.path for file in files if rule_of(file) == "excluded"} == {"sub/b.py"}


def test_repositories_of_one_name_are_distinguished(repository: Path, tmp_path: Path) -> None:
    for owner in ("ann", "bob"):
        (tmp_path / owner).mkdir()
        _git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / owner / "code.git"))
    files = read_all(GitConfig(path=(str(tmp_path / "ann" / "code.git"), str(tmp_path / "bob" / "code.git"))))
    assert {file.repository for file in files} == {"ann/code", "bob/code"}


def test_large_blobs_are_not_requested(repository: Path) -> None:
    files = read_all(GitConfig(path=(str(repository),)), ReadLimits(max_file_bytes=3))
    assert {file.path for file in files if rule_of(file) == "file_size"} == {"a.py", "\\xff.py"}


def test_a_repository_that_is_named_several_ways_is_read_once(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(repository)
    once = read_all(GitConfig(path=(str(repository),)))
    ways = (
        str(tmp_path / "co*"),
        f"{repository}/.",
        f"{repository}/.git",
        f"{tmp_path}/./code/",
        f"{tmp_path}/alias",
    )
    assert read_all(GitConfig(path=ways)) == once
    for way in ways[:-1]:
        assert read_all(GitConfig(path=(way, str(repository)))) == once
    named = read_all(GitConfig(path=(str(repository), f"{repository}/.git"), repository="mine"))
    assert {file.repository for file in named} == {"mine"}


def test_excluded_files_have_their_size(repository: Path) -> None:
    files = read_all(GitConfig(path=(str(repository),), exclude=("a.py", "link.py", "module")))
    found = {file.path: file.num_bytes for file in files if rule_of(file) == "excluded"}
    assert found == {"a.py": 7, "link.py": 0, "module": 0}
    assert sum(unit.num_bytes for unit in plan_units(GitConfig(path=(str(repository),), exclude=("*",)))) == 0


def test_licence_files_are_read_whatever_the_size_limits(repository: Path) -> None:
    (repository / "LICENSE").write_text("x" * 100)
    (repository / "z.py").write_text("z\n")
    _git(repository, "add", "LICENSE", "z.py")
    _git(repository, "commit", "-q", "-m", "licence")
    files = read_all(GitConfig(path=(str(repository),)), ReadLimits(max_file_bytes=3))
    found = {file.path: (rule_of(file), file.data) for file in files}
    assert found["LICENSE"] == ("file_size", b"x" * 100)
    assert found["a.py"] == ("file_size", None)
    assert found["z.py"] == (None, b"z\n")


def test_many_blobs_pass_through_the_pipe(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(700):
        (repository / f"n{number}.py").write_text(f"{number}\n" * 50)
    _git(repository, "add", "-A")
    _git(repository, "commit", "-q", "-m", "many")
    monkeypatch.setattr(git_program, "OBJECTS_PER_REQUEST", 100)
    found = texts(read_all(GitConfig(path=(str(repository),))))
    assert all(found["code", f"n{number}.py"] == f"{number}\n".encode() * 50 for number in range(700))


def test_missing_objects_are_rows(repository: Path) -> None:
    config = GitConfig(path=(str(repository),))
    units = plan_units(config)
    blob = _git(repository, "rev-parse", "HEAD:sub/b.py")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for planned in (units, plan_units(config)):
        files = [file for unit in planned for file in read_unit(unit, ReadLimits())]
        assert [file.path for file in files if rule_of(file) == "readable"] == ["sub/b.py"]
        assert len(files) == 7


def test_a_damaged_pack_affects_its_damaged_objects_only(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (repository / f"n{number}.py").write_text("".join(f"{number * k}\n" for k in range(50)))
    _git(repository, "add", "-A")
    _git(repository, "commit", "-q", "-m", "many")
    _git(repository, "repack", "-q", "-a", "-d", "-f", "--depth=0")
    config = GitConfig(path=(str(repository),))
    (unit,) = plan_units(config)
    complete = list(read_unit(unit, ReadLimits()))
    _damage(repository, [_git(repository, "rev-parse", f"HEAD:n{number}.py") for number in (7, 8, 200)])
    monkeypatch.setattr(git_program, "OBJECTS_PER_REQUEST", 50)
    files = list(read_unit(unit, ReadLimits()))
    assert {file.path for file in files if rule_of(file) == "readable"} == {"n7.py", "n8.py", "n200.py"}
    assert [file.path for file in files] == [file.path for file in complete]
    assert {file for file in files if file.data is not None} < set(complete)


def _damage(repository: Path, blobs: list[str]) -> None:
    (index,) = (repository / ".git" / "objects" / "pack").glob("*.idx")
    listed = [line.split() for line in _git(repository, "verify-pack", "-v", str(index)).splitlines()]
    # <object> <type> <size> <size in the pack> <offset>
    places = [int(words[4]) for words in listed if words[0] in blobs]
    assert len(places) == len(blobs)
    pack = index.with_suffix(".pack")
    data = bytearray(pack.read_bytes())
    for place in places:
        data[place + 10 : place + 30] = bytes(byte ^ 0xFF for byte in data[place + 10 : place + 30])
    pack.chmod(0o600)
    pack.write_bytes(data)


def test_a_repository_that_vanished_is_rows(repository: Path) -> None:
    units = plan_units(GitConfig(path=(str(repository),)))
    (repository / ".git").rename(repository / "gone")
    files = [file for unit in units for file in read_unit(unit, ReadLimits())]
    assert sum(rule_of(file) == "readable" for file in files) == 5


def test_signature_follows_the_objects_only(repository: Path) -> None:
    config = GitConfig(path=(str(repository),))
    first = plan_units(config)[0].signature
    _git(repository, "commit", "-q", "--allow-empty", "-m", "nothing")
    assert plan_units(config)[0].signature == first
    _git(repository, "commit", "-q", "-m", "three", "a.py")
    assert plan_units(config)[0].signature != first


def test_errors_name_what_is_no_repository_or_revision(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read at revision v9"):
        plan_units(GitConfig(path=(str(repository),), revision="v9"))
    # A folder inside a repository is not that repository.
    with pytest.raises(UserError, match=r"code/sub cannot be read .*not a git repository"):
        plan_units(GitConfig(path=(str(repository / "sub"),)))
    with pytest.raises(UserError, match="there is no such folder"):
        plan_units(GitConfig(path=(str(tmp_path / "nowhere"),)))


def test_options_cannot_be_injected(repository: Path, tmp_path: Path) -> None:
    for revision in ("--output=x", "-h", "HEAD\nHEAD"):
        with pytest.raises(ValidationError, match="not the name of a commit"):
            GitConfig(path=(str(repository),), revision=revision)
    odd = tmp_path / "--upload-pack=touch x"
    repository.rename(odd)
    assert len(read_all(GitConfig(path=(str(odd),)))) == 7


def test_the_callers_git_variables_and_a_repositorys_commands_are_ignored(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    mark = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "diff.external"):
        _git(repository, "config", key, f"touch {mark}")
    # A partial clone that lacks an object would fetch it.
    for key, value in (("remote.origin.url", f"ext::touch {mark}"), ("remote.origin.promisor", "true")):
        _git(repository, "config", key, value)
    _git(repository, "config", "extensions.partialClone", "origin")
    _git(repository, "config", "protocol.ext.allow", "always")
    blob = _git(repository, "rev-parse", "HEAD:sub/b.py")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    files = read_all(GitConfig(path=(str(repository),)))
    assert [file.path for file in files if rule_of(file) == "readable"] == ["sub/b.py"]
    assert not mark.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_repositories_of_other_users_are_read(repository: Path) -> None:
    for folder, _, names in os.walk(repository):
        for name in (".", *names):
            os.chown(os.path.join(folder, name), 12345, 12345, follow_symlinks=False)
    assert len(read_all(GitConfig(path=(str(repository),)))) == 7


def test_one_of_several_repositories_without_a_commit_is_a_row(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    _git(tmp_path / "fresh", "init", "-q", "-b", "main")
    files = read_all(GitConfig(path=(str(repository), str(tmp_path / "fresh"))))
    (row,) = [file for file in files if file.repository == "fresh"]
    assert (row.path, row.data, rule_of(row)) == (".", None, "readable")
    assert texts(files)["code", "a.py"] == b"second\n"
    with pytest.raises(UserError, match="fresh cannot be read at revision HEAD"):
        plan_units(GitConfig(path=(str(tmp_path / "fresh"), str(tmp_path / "fresh"))))
