import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.repository_order.dependencies import needs_of_files
from data_prep.repository_order.order import RepositoryFile, dependency_order


def ordered(language: str, files: dict[str, tuple[str, ...]]) -> list[str]:
    """Return paths in dependency order; the files are passed in reverse."""
    listed = [RepositoryFile(path, language, imports) for path, imports in reversed(files.items())]
    return [listed[i].path for i in dependency_order(listed)]


@pytest.mark.parametrize(
    ("importer", "target", "imported"),
    [
        ("a.py", "z", "z.py"),
        ("a.py", "pkg.z.name", "pkg/z.py"),
        ("a.py", "pkg.name", "pkg/__init__.py"),
        ("a.py", "pkg.z", "src/pkg/z.py"),
        ("tests/a.py", "pkg.z.f", "src/pkg/z.py"),
        ("src/pkg/a.py", "pkg.z.f", "src/pkg/z.py"),
        ("pkg/a.py", ".z.f", "pkg/z.py"),
        ("pkg/a.py", ".z", "pkg/z.py"),
        ("pkg/a.py", ".name", "pkg/__init__.py"),
        ("pkg/sub/a.py", "..z.f", "pkg/z.py"),
        ("pkg/sub/a.py", "...z.f", "z.py"),
        ("a.py", "pkg.z", "pkg/z.pyi"),
        ("apps/one/a.py", "shared.z.f", "libs/shared/shared/z.py"),
        ("apps/one/a.py", "shared", "libs/shared/src/shared/__init__.py"),
    ],
)
def test_python_import_is_resolved(importer: str, target: str, imported: str) -> None:
    assert _is_resolved("python", importer, target, imported)


@pytest.mark.parametrize(
    ("importer", "target", "stranger"),
    [
        ("pkg/a.py", "z", "pkg/z.py"),  # inside a package, a bare name is not its sibling
        ("pkg/a.py", "....z", "z.py"),  # leaves the repository
        ("tools/a.py", "json", "vendored/json.py"),  # the namesake of a library, elsewhere
        ("a.py", "pkg.z.f", "other/z.py"),
    ],
)
def test_python_import_of_something_else_is_not_resolved(importer: str, target: str, stranger: str) -> None:
    assert not _is_resolved("python", importer, target, stranger)


@pytest.mark.parametrize(
    ("importer", "target", "imported"),
    [
        ("a.js", "./z", "z.js"),
        ("a.js", "./z.js", "z.ts"),
        ("a.ts", "./z", "z.tsx"),
        ("a.ts", "./dir", "dir/index.ts"),
        ("dir/a.js", "../z.mjs", "z.mjs"),
        ("dir/a.js", "..", "index.js"),
        ("src/dir/a.ts", "@/z/thing", "src/z/thing.ts"),
    ],
)
def test_script_import_is_resolved(importer: str, target: str, imported: str) -> None:
    assert _is_resolved("typescript", importer, target, imported)


@pytest.mark.parametrize(
    ("importer", "target", "imported"),
    [
        ("src/main/java/a/A.java", "b.Z", "src/main/java/b/Z.java"),
        ("src/main/java/a/A.java", "b.Z.Inner", "src/main/java/b/Z.java"),
        ("src/main/java/a/A.java", "b.Z.max", "src/main/java/b/Z.java"),
        ("src/main/java/a/A.java", "b.*", "src/main/java/b/Z.java"),
        ("src/main/java/a/A.java", "b.Z.*", "src/main/java/b/Z.java"),
        ("one/src/a/A.java", "b.Z", "two/src/b/Z.java"),
    ],
)
def test_java_import_is_resolved(importer: str, target: str, imported: str) -> None:
    assert _is_resolved("java", importer, target, imported)


@pytest.mark.parametrize(
    ("importer", "target", "imported"),
    [
        ("a.c", "z.h", "z.h"),
        ("src/a.c", "../inc/z.h", "inc/z.h"),
        ("src/a.c", "lib/z.h", "include/lib/z.h"),
        ("src/a.c", "<lib/z.h>", "include/lib/z.h"),
        ("src/a.c", "z.h", "deep/down/z.h"),
        ("usr/a.h", "<z.h>", "usr/z.h"),
    ],
)
def test_include_is_resolved(importer: str, target: str, imported: str) -> None:
    assert _is_resolved("c++", importer, target, imported)


def test_a_system_header_is_not_a_repository_file_of_that_name() -> None:
    assert not _is_resolved("c", "src/a.c", "<string.h>", "compat/string.h")


def test_the_nearest_of_several_headers_of_a_name_is_used() -> None:
    files = {"one/src/a.c": ("z.h",), "one/inc/z.h": (), "two/inc/z.h": ()}
    assert ordered("c", files) == ["one/inc/z.h", "one/src/a.c", "two/inc/z.h"]


@pytest.mark.parametrize(
    ("importer", "target", "imported"),
    [
        ("cmd/a.go", "corp.com/mod/internal/z", "internal/z/z.go"),
        ("cmd/a.go", "corp.com/x/y", "vendor/corp.com/x/y/z.go"),
    ],
)
def test_go_import_is_resolved(importer: str, target: str, imported: str) -> None:
    assert _is_resolved("go", importer, target, imported)


def test_go_packages_need_all_their_files_except_tests() -> None:
    files = {
        "a.go": ("corp.com/mod/one", "corp.com/mod/two", "errors"),
        "errors/e.go": (),
        "one/z1.go": (),
        "one/z1_test.go": (),
        "one/z2.go": ("corp.com/mod/two",),
        "two/z.go": (),
    }
    assert ordered("go", files) == [
        "one/z1.go",
        "two/z.go",
        "one/z2.go",
        "a.go",
        "errors/e.go",
        "one/z1_test.go",
    ]


def test_a_go_folder_named_like_the_end_of_an_external_import_is_not_used() -> None:
    assert not _is_resolved("go", "a.go", "github.com/pkg/errors", "errors/z.go")


def test_the_name_of_a_repository_that_is_a_package_is_inferred_from_imports() -> None:
    files = {"__init__.py": (), "a.py": ("pkg.z.f", "pkg.y", "os.path"), "y.py": (), "z.py": ()}
    assert ordered("python", files) == ["__init__.py", "y.py", "z.py", "a.py"]


def test_a_cycle_of_files_starts_where_fewest_imports_are_missing() -> None:
    files = {"a.py": ("b", "c"), "b.py": ("a", "c"), "c.py": ("a",), "d.py": ("a",)}
    assert ordered("python", files) == ["c.py", "a.py", "b.py", "d.py"]


def test_files_without_imports_are_in_path_order() -> None:
    assert ordered("markdown", {"b.md": (), "a/z.md": (), "a/b.md": ()}) == ["a/b.md", "a/z.md", "b.md"]


@st.composite
def acyclic_repositories(draw: st.DrawFn) -> tuple[list[RepositoryFile], list[tuple[str, str]]]:
    """Draw Python files, each importing some of those before it, and return these edges as paths."""
    size = draw(st.integers(1, 12))
    names = draw(st.permutations([f"m{i}" for i in range(size)]))
    folders = draw(
        st.lists(st.sampled_from(["", "src/", "src/pkg/", "other/pkg/"]), min_size=size, max_size=size)
    )
    files, edges = [], []
    for i, name in enumerate(names):
        sources = draw(st.lists(st.integers(0, i - 1), max_size=4)) if i else []
        siblings = [j for j in sources if folders[j] == folders[i]]
        files.append(
            RepositoryFile(f"{folders[i]}{name}.py", "python", tuple(f".{names[j]}" for j in siblings))
        )
        edges += [(files[j].path, files[i].path) for j in siblings]
    return files, edges


@settings(max_examples=100, deadline=None)
@given(acyclic_repositories(), st.randoms(use_true_random=False))
def test_every_import_of_an_acyclic_repository_comes_first_whatever_the_input_order(
    repository: tuple[list[RepositoryFile], list[tuple[str, str]]], rng: random.Random
) -> None:
    files, edges = repository
    order = dependency_order(files)
    assert sorted(order) == list(range(len(files)))
    paths = [files[i].path for i in order]
    assert all(paths.index(imported) < paths.index(importer) for imported, importer in edges)
    shuffled = list(files)
    rng.shuffle(shuffled)
    assert [shuffled[i].path for i in dependency_order(shuffled)] == paths


_PARTS = [
    "..",
    ".",
    "",
    "a",
    "b",
    "*",
    "index",
    "vendor",
    "src",
    "a.py",
    "a.go",
    "a.js",
    "C.java",
    "x.h",
    "__init__.py",
]
_PATHS = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            RepositoryFile,
            path=_PATHS.map("/".join),
            language=st.sampled_from(["python", "typescript", "java", "c", "go", "markdown"]),
            imports=st.lists(
                st.tuples(st.sampled_from([".", "/"]), _PATHS).map(lambda drawn: drawn[0].join(drawn[1])),
                max_size=3,
            ).map(tuple),
        ),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_any_paths_and_imports_give_a_permutation_that_depends_on_the_set_alone(
    files: list[RepositoryFile], rng: random.Random
) -> None:
    order = dependency_order(files)
    assert sorted(order) == list(range(len(files)))
    shuffled = list(files)
    rng.shuffle(shuffled)
    assert [shuffled[i] for i in dependency_order(shuffled)] == [files[i] for i in order]


@pytest.mark.parametrize("language", ["python", "typescript", "java", "c", "go"])
def test_ten_thousand_files_take_seconds(language: str) -> None:
    """It takes at most one second on an idle machine; the limit is five, because tests run in parallel."""
    rng = random.Random(0)
    ending = {"python": "py", "typescript": "ts", "java": "java", "c": "h", "go": "go"}[language]
    names = [f"src/p{i % 40}/q{i % 400}/utils{i // 400}.{ending}" for i in range(10_000)]
    files = []
    for name in names:
        stems = [rng.choice(names).removeprefix("src/").rpartition(".")[0] for _ in range(12)]
        imports = {
            "python": [stem.replace("/", ".") for stem in stems],
            "typescript": [f"@/{stem}" for stem in stems],
            "java": [stem.replace("/", ".") for stem in stems],
            "c": [f"{stem.rpartition('/')[2]}.h" for stem in stems],
            "go": [f"corp.com/mod/src/{stem.rpartition('/')[0]}" for stem in stems],
        }[language]
        files.append(RepositoryFile(name, language, tuple(imports)))
    start_s = time.process_time()
    order = dependency_order(files)
    assert time.process_time() - start_s < 5
    assert sorted(order) == list(range(10_000))


def _is_resolved(language: str, importer: str, target: str, imported: str) -> bool:
    """Return whether the import of `target` makes `importer` need `imported`, directly or through a package."""
    packages = {"pkg/__init__.py", "pkg/sub/__init__.py"} if importer.startswith("pkg/") else set()
    paths = [importer, imported, *sorted(packages - {imported})]
    needs = needs_of_files(paths, [language] * len(paths), [(target,), *[()] * (len(paths) - 1)])
    return 1 in needs[0] or any(1 in needs[node] for node in needs[0] if node >= len(paths))
