"""Vendored code, found by its path: other projects' code in a repository, and build outputs.

The names are those of github-linguist's `lib/linguist/vendor.yml` (9.6.0, commit b45dbe9) that mean such code.
Left out are names that linguist excludes from its language statistics although the repository's authors wrote the
files (test fixtures, `testdata`, `.github`, `.vscode`, `Vagrantfile`, `Jenkinsfile`, `fabfile.py`, `*.d.ts`, git's own
files), and ordinary names of a project's own code (`cache/`, `env/`, `effects.js`, `controls.js`, `*import.css`). Added
are virtual environments, folders of Python's and Node's tools, `_vendor`, and `build`, which linguist lacks. `build`
and `dist` count at a repository's root only: further down they are a project's own packages (`src/build`, `cmd/dist`).
"""

import re
from collections.abc import Iterable

NO_REPOSITORIES = frozenset(
    # What package managers install.
    "node_modules bower_components jspm_packages web_modules xvba_modules"
    " site-packages dist-packages .venv .virtualenv .tox .nox .eggs __pypackages__".split()
)
"""Folders whose files are vendored, with names that no repository has."""
FOLDERS = NO_REPOSITORIES | frozenset(
    # Usual names for dependencies.
    "vendor vendors Vendor Vendors vendored _vendor _vendored extern external externals Extern External Externals"
    " third_party third-party thirdparty Third_Party Third-Party ThirdParty Thirdparty"
    " 3rd_party 3rd-party 3rdparty 3rd_Party 3rd-Party 3rdParty".split()
)
"""Folders whose files are vendored within a repository."""
PROJECT_MARKS = frozenset(
    ".git .hg .svn pyproject.toml setup.py setup.cfg package.json Cargo.toml go.mod pom.xml build.gradle"
    " build.gradle.kts build.sbt composer.json Gemfile Makefile makefile GNUmakefile CMakeLists.txt configure.ac"
    " meson.build BUILD.bazel WORKSPACE MODULE.bazel".split()
)
"""Files and folders that mark a folder as a project."""

_IN_REPOSITORIES = frozenset(
    # Libraries that are usually copied completely. A repository itself may have such a name.
    "ace-builds MathJax bootstrap-datepicker admin_media font-awesome fontawesome puphpet .google_apis Sparkle"
    " extjs tiny_mce Carthage flow-typed Crashlytics.framework Fabric.framework BuddyBuildSDK.framework"
    " Realm.framework RealmSwift.framework".split()
)
# Further down these are often a project's own packages.
_AT_ROOT = frozenset({"deps", "dependencies", "Dependencies", "debian"})
# Build outputs and virtual environments at a repository's root, unless the folder is a package.
_AT_ROOT_BUT_PACKAGES = frozenset({"build", "dist", "venv", "virtualenv"})
_BELOW = {
    folder: re.compile(below)
    for folders, below in (
        ("Godeps", r"_workspace/"),
        (".yarn", r"(releases|plugins|sdks|versions|unplugged)/"),
        ("gradle .mvn", r"wrapper/"),
        ("doc docs", r"_?(build|themes?|static)/"),
        ("inst", r"extdata/"),
        ("codemirror codeMirror Codemirror CodeMirror", r"(\d+\.\d+/)?(lib|mode|theme|addon|keymap|demo)/"),
        ("packages Packages", r"[^/]+\.\d+/"),
    )
    for folder in folders.split()
}
_FILES = tuple(
    re.compile(pattern)
    for pattern in (
        # Scripts of build tools that are copied into repositories.
        r"configure|config\.(guess|sub)|aclocal\.m4|libtool\.m4|lt(options|sugar|version|~obsolete)\.m4",
        r"(gradlew|mvnw|activator)(\.bat|\.cmd)?|waf|rebar|erlang\.mk|_esy|run\.n|cpplint\.py|\.indent\.pro",
        r"dotnet-install\.(ps1|sh)",
        # Libraries for browsers.
        r".*[.-]min\.(js|css)",
        r".*(-vsdoc|\.intellisense)\.js",
        r"jquery[^.]*\.js|jquery(-ui)?-\d+\.\d+(\.\d+)?\.(js|css)",
        r"jquery[^.]*\.(ui|effects|fn|fancybox|fileupload|dataTables|validate|unobtrusive)\b.*\.(js|css)",
        r"(custom\.)?bootstrap[^.]*(\..*)?\.(js|css|less|scss|styl)",
        r"(foundation|materialize|skeleton|normalize|animate|bulma|font-?awesome)\.(css|less|sass|scss|styl)",
        r"(foundation|materialize)(\..*)?\.js",
        r"fontello.*\.css|(octicons|sprockets-octicons)\.s?css",
        r"(prototype|mootools|angular|react|d3|knockout|modernizr|cordova)([.-]v?\d.*)?(\.(debug|custom).*)?\.js",
        r"(angular|react|mootools|cordova|yahoo)-[^.]*\.js|(yui|tiny_mce)[^.]*\.js|sh(Brush[^.]*|Core|Legacy)\.js",
        r"(dojo|MochiKit|ckeditor|Chart|html5shiv|bootbox|fuelux|pdf\.worker|wicket-leaflet|slick\.\w+)\.js",
        r"([Ll]eaflet\.(draw|draw-src|spin|Coordinates-[\d.]+\.src)|Control\.FullScreen)\.(js|css)",
        r"[Mm]icrosoft([Mm]vc)?([Aa]jax|[Vv]alidation)(\.debug)?\.js",
    )
)
_ANY_FILE = re.compile("|".join(pattern.pattern for pattern in _FILES))


class Neighbours:
    """Collects, from every path of a listing, which folders are environments, projects or packages.

    Paths are relative, with slashes; the listing's own folder is "".
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._environments: set[str] = set()
        self._projects: set[str] = set()
        self._packages: set[str] = set()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Add a path: every file, and every folder that is not entered."""
        folder, _, name = path.rpartition("/")
        if name == "pyvenv.cfg":
            self._environments.add(folder)
        elif name in PROJECT_MARKS:
            self._projects.add(folder)
        elif name == "__init__.py" or name.endswith(".go"):
            if folder.rpartition("/")[2] in _AT_ROOT_BUT_PACKAGES:
                self._packages.add(folder)

    def is_environment(self, folder: str) -> bool:
        """Return whether the folder is a virtual environment, and not a project with one in the same folder."""
        return folder in self._environments and folder not in self._projects

    def is_project(self, folder: str) -> bool:
        """Return whether the folder has a project's mark."""
        return folder in self._projects

    def is_package(self, folder: str) -> bool:
        """Return whether a folder with the name of a build output is a package of Python or Go."""
        return folder in self._packages


def vendored_by(path: str, neighbours: Neighbours, is_below_repositories: bool = False) -> str | None:
    """Return the sign that the file at `path` is vendored, None if it is not.

    The sign is a folder, with a slash at its end, the mark of an environment, or the pattern that matches the file's
    name. `path` is relative to its repository or, with `is_below_repositories`, begins with the repository's folder,
    whose name does not count.
    """
    *folders, name = path.split("/")
    root = 1 if is_below_repositories else 0
    for depth, folder in enumerate(folders):
        prefix = "/".join(folders[: depth + 1])
        if folder in NO_REPOSITORIES:
            return f"{folder}/"
        if neighbours.is_environment(prefix):
            return f"{folder}/pyvenv.cfg"
        if depth < root:
            continue
        if folder in FOLDERS or folder in _IN_REPOSITORIES or (depth == root and folder in _AT_ROOT):
            return f"{folder}/"
        if depth == root and folder in _AT_ROOT_BUT_PACKAGES and not neighbours.is_package(prefix):
            return f"{folder}/"
        below = _BELOW.get(folder)
        if below is not None:
            found = below.match("/".join((*folders[depth + 1 :], "")))
            if found is not None:
                return f"{folder}/{found[0]}"
    if _ANY_FILE.fullmatch(name) is None:
        return None
    return next(pattern.pattern for pattern in _FILES if pattern.fullmatch(name))
