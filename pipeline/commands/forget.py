"""`permcode forget`: removes documents from the prep folders of a run, for example when their owner withdraws.

The request is recorded in forgotten.json of the run, so that later preparations leave the documents out. While the
prep folders are changed, their STAGE.json is renamed: if the command is killed, `permcode run` finds the stage
unfinished and finishes it, and so does the same `permcode forget`.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cluster.errors import UserError
from cluster.reporter import Reporter
from cluster.storage import exclusive_lock, sha256_file
from data_prep.decontamination.choice import evaluation_sets_of
from data_prep.finished.forget_requests import ForgetRequest, read_requests, record_request
from data_prep.finished.manifest import MANIFEST_NAME
from data_prep.finished.prepared import open_prepared
from data_prep.finished.summary import summarise
from data_prep.forget import Forgetting, plan_forgetting
from data_prep.forget import forget as forget_in
from finetune.experiment.files import PREDICTIONS_NAME
from pipeline.commands.exit_codes import exit_codes
from pipeline.commands.options import Folder
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.folder.prep_folder import PrepFolder, find_prep_folder
from pipeline.folder.stage_record import StageRecord, output_files, read_record, write_record

_HIDDEN_RECORD = f".{StageFiles.RECORD}.forgetting"


def forget_documents(folder: PrepFolder, request: ForgetRequest, dry_run: bool, reporter: Reporter) -> None:
    """Remove the documents of `request` from every finished prep folder of the run, or from the one folder.

    Prints what is removed. Repeating a request changes nothing. Raises UserError if it never matched a document,
    another process works in the folder, or a file is damaged.
    """
    home = folder.run or folder.prep
    if dry_run:
        for line in _plan(folder, request):
            reporter.line(line)
        return
    with exclusive_lock(home / RunFiles.LOCK):
        is_repeated = request in read_requests(home)
        preps = _prep_folders(folder)
        found = {prep: plan_forgetting(prep, (request,)) for prep in preps}
        if not is_repeated and not any(forgetting.num_rows for forgetting in found.values()):
            raise _nothing_found(home, request)
        with ExitStack() as stack:
            for prep in preps:
                stack.enter_context(_hide_record(prep))
            requests = record_request(home, request)
            for prep in preps:
                for line in _report_lines(prep, request, forget_in(prep, requests), is_planned=False):
                    reporter.line(line)
        for line in _remaining_traces(folder.run):
            reporter.line(line)


def _plan(folder: PrepFolder, request: ForgetRequest) -> list[str]:
    home = folder.run or folder.prep
    recorded = read_requests(home)
    lines: list[str] = []
    num_rows = 0
    for prep in _prep_folders(folder):
        forgetting = plan_forgetting(prep, (*recorded, request))
        num_rows += forgetting.num_rows
        lines += _report_lines(prep, request, forgetting, is_planned=True)
    if not num_rows and request not in recorded:
        raise _nothing_found(home, request)
    return lines


def _report_lines(
    prep: Path, request: ForgetRequest, forgetting: Forgetting, is_planned: bool
) -> Iterator[str]:
    yield from _changes(prep, request, forgetting, "would remove" if is_planned else "removed")
    if forgetting.empty_splits:
        splits = ", ".join(forgetting.empty_splits)
        yield (
            f"{prep.name}: nothing {'would be' if is_planned and forgetting.num_documents else 'is'} left of {splits}: "
            f"to train or evaluate with {splits} again, use a new --out and a source without the forgotten documents"
        )


def _changes(prep: Path, request: ForgetRequest, forgetting: Forgetting, verb: str) -> Iterator[str]:
    if forgetting.copies:
        yield (
            f"{prep.name}: equal or similar text stays under {', '.join(forgetting.copies)}: "
            "forget those too if they must go"
        )
    if not forgetting.num_documents:
        yield f"{prep.name}: nothing (more) to forget of {request}"
        return
    names = ", ".join(forgetting.repositories[:3]) + (", ..." if len(forgetting.repositories) > 3 else "")
    yield (
        f"{prep.name}: {verb} {forgetting.num_documents:,} documents "
        f"({forgetting.num_text_bytes / 1e6:,.2f} MB, {forgetting.num_tokens:,} tokens) of {names} "
        f"from {', '.join(forgetting.splits)}"
    )
    yield (
        f"{prep.name}: {len(forgetting.shards):,} of {forgetting.num_shards:,} tars rewritten, "
        f"the manifest's revision is {forgetting.revision}"
    )


def _remaining_traces(run: Path | None) -> Iterator[str]:
    yield (
        "the ledger keeps the files' names with rule `forgotten`; the tokenizer stays: it holds no text except "
        "frequent pieces of words"
    )
    if run is not None and any(run.glob(f"pretrain-*/{StageFiles.RECORD}")):
        yield f"models in {run} were trained on the documents: train again in another folder"
    folders = (
        []
        if run is None
        else sorted({path.parents[2].name for path in run.glob(f"*/*/*/{PREDICTIONS_NAME}")})
    )
    if folders:
        yield (
            f"predictions of {', '.join(folders)}, and their copies in MLflow, may hold forgotten texts: remove "
            "these folders and their MLflow runs"
        )


def _nothing_found(home: Path, request: ForgetRequest) -> UserError:
    return UserError(
        f"{home} holds no file of {request}: `permcode inspect` lists names, the ledger has all of them"
    )


def _prep_folders(folder: PrepFolder) -> list[Path]:
    if folder.run is None:
        return [folder.prep]
    return sorted(path for path in folder.run.glob("prep-*") if (path / MANIFEST_NAME).is_file())


@contextmanager
def _hide_record(prep: Path) -> Iterator[None]:
    """Rename STAGE.json during the block, then write it for the changed folder.

    A folder without STAGE.json, renamed or not, gets none.
    """
    hidden = prep / _HIDDEN_RECORD
    record = read_record(prep)
    if record is not None:
        os.replace(prep / StageFiles.RECORD, hidden)
    else:
        record = read_record(prep, _HIDDEN_RECORD)
    yield
    if record is not None:
        write_record(prep, _updated(record, prep))
        hidden.unlink()


def _updated(record: StageRecord, prep: Path) -> StageRecord:
    """Return the record of the changed folder. All files but the manifest have new names if they changed."""
    files = {}
    for path in output_files(prep):
        name = str(path.relative_to(prep))
        known = record.files.get(name) if name != MANIFEST_NAME else None
        files[name] = known or {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    corpus = open_prepared(prep)
    summary = summarise(corpus.ledger(), corpus.manifest) | evaluation_sets_of(record.summary)
    return replace(record, files=files, summary=summary)


def forget(
    folder: Folder,
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="NAME", help="Forget all documents of this repository.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="GLOB",
            help='Forget all documents whose PATH or REPOSITORY/PATH matches; "*" also matches "/".',
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed; change nothing.")
    ] = False,
) -> None:
    """Remove documents from the shards for good.

    Only the tars that held them are rewritten. The request is recorded in forgotten.json, and later preparations in
    this folder apply it. After a kill, the same command finishes the work.

    \b
    permcode forget runs/demo --repo some/project
    permcode forget runs/demo --path "*/secret/*" --dry-run
    """
    with exit_codes(None):
        if (repo is None) == (path is None) or "" in (repo, path):
            raise UserError("give what to forget: --repo NAME or --path GLOB")
        request = ForgetRequest(repository=repo, path=path)
        forget_documents(find_prep_folder(folder), request, dry_run, Reporter())
