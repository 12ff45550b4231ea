"""`permcode playground`: a model on a page in the browser, from the server of `permcode serve RUN --editor`."""

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.held_out_lines import corpus_beside
from pipeline.commands.options import Run, Task
from pipeline.commands.serve import EDITOR_PORT, serve_model

if TYPE_CHECKING:
    from pipeline.editor.app import Playground
    from pipeline.editor.corpus import CorpusSearch
    from pretrain.inference.folders import ModelFiles


def _playground_of(files: "ModelFiles") -> "Playground":
    from pipeline.editor.app import Playground
    from pipeline.editor.page import Page

    return Playground(Page(), _search_of(files))


def _search_of(files: "ModelFiles") -> "CorpusSearch | None":
    """Return the search of the model's corpus; None, with a warning, where there is none that can be read."""
    from data_prep.finished.prepared import open_prepared
    from pipeline.editor.corpus import CorpusSearch

    folder = corpus_beside(files)
    if folder is None:
        warn(f"there is no prepared corpus beside {files.folder}: the page cannot search it")
        return None
    try:
        return CorpusSearch(open_prepared(folder))
    except UserError as error:
        warn(f"the page cannot search the corpus: {error}")
        return None


def playground(
    run: Run,
    task: Task = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port.")] = EDITOR_PORT,
) -> None:
    """Show a page on which a model completes text, fills holes and marks what surprises it, until Ctrl-C.

    The address is printed when the page is there. Editors are answered too, as by `permcode serve RUN --editor`.

    \b
    permcode playground runs/demo
    permcode playground runs/demo --port 8100
    """
    with exit_codes(None):
        serve_model(run, task, host, port, _playground_of)
