"""A small finished prep folder: three tars of train, the repository `alpha` in two of them."""

from pathlib import Path

import pytest

from tests.unit.data_prep.finished.written import Document, Layout, write_prepared


def document(repository: str, name: str) -> Document:
    """A few lines with characters of one to four bytes, that no other document has."""
    lines = [f"# {repository} {name}", "def café(x):", f"    return x + '{name} – 𝄞'", "", f"{name} = 1", ""]
    path = f"src/{name}"
    language = "Python" if name.endswith(".py") else "C"
    return Document(repository, path, "\n".join(lines), language, "MIT" if repository == "alpha" else None)


LAYOUT: Layout = {
    "train": [
        [
            [document("alpha", "a.py"), document("alpha", "b.py"), document("beta", "c.py")],
            [document("beta", "d.py"), document("gamma", "e.c")],
        ],
        [[document("gamma", "f.py")], [document("gamma", "g.py"), document("delta", "h.py")]],
        [[document("alpha", "i.py")], [document("delta", "j.c")]],
    ],
    "validation": [[[document("epsilon", "k.py")]]],
    "test": [[[document("zeta", "l.py")]], [[document("zeta", "m.c")]]],
}


@pytest.fixture
def prep(tmp_path: Path) -> Path:
    return write_prepared(tmp_path / "prep", LAYOUT)


@pytest.fixture
def layout() -> Layout:
    return LAYOUT
