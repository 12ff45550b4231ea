"""`permcode embed`: computes a vector per file."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError
from cluster.storage import write_bytes
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.options import Files, Run, Task
from pipeline.commands.text_output import ends_quietly, print_lines
from pipeline.folder.task_folder import task_folder
from pipeline.folder.user_files import check_output, read_text_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def embedding_lines(run: Path, paths: list[Path], out: Path | None) -> Iterator[str]:
    """Compute a vector per file and return the lines to print: JSON per file, or one line if `out` is written.

    Raises UserError before anything is printed.
    """
    if out is not None:
        _check_out(out, paths)
    files = [read_text_file(path) for path in paths]

    from pretrain.inference.language_model import PermutationLM

    vectors = PermutationLM.from_run(run, on_damaged=warn).embed([file.data for file in files])
    names = [file.name for file in files]
    if out is None:
        return _json_lines(names, vectors)
    as_npz = out.suffix == ".npz"
    data = (
        _npz(names, vectors)
        if as_npz
        else "".join(f"{line}\n" for line in _json_lines(names, vectors)).encode()
    )
    try:
        write_bytes(out, data)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror}): give another name") from None
    return iter([f"{len(names)} vectors of {vectors.shape[1]} numbers in {out}"])


def _check_out(out: Path, paths: list[Path]) -> None:
    if out.suffix not in (".npz", ".jsonl"):
        raise UserError(f"--out {out}: the name must end in .npz (NumPy) or .jsonl (JSON, one file per line)")
    for path in paths:
        check_output(out, "--out", path)


def _json_lines(names: list[str], vectors: "NDArray[np.float32]") -> Iterator[str]:
    for name, vector in zip(names, vectors, strict=True):
        # Nine digits are enough to read the same float32 back.
        yield json.dumps({"path": name, "vector": [float(f"{value:.9g}") for value in vector.tolist()]})


def _npz(names: list[str], vectors: "NDArray[np.float32]") -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, path=np.array(names), vector=vectors)
    return buffer.getvalue()


def embed(
    run: Run,
    files: Files,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write a file instead: .npz (path, vector) or .jsonl."
        ),
    ] = None,
    task: Task = None,
) -> None:
    """Compute a vector of length one per file, for search: similar files have a large inner product.

    \b
    permcode embed runs/demo src/*.py --out vectors.npz
    permcode embed runs/demo --task search src/*.py --out vectors.npz
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        print_lines(embedding_lines(task_folder(run, task), files, out))
