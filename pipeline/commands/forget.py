"""`permcode forget`: the documents of an owner who withdraws leave the prep folders of a run.

The request is written down in forgotten.json of the run, so that no later preparation brings the documents back.
Before that and until the prep folders are changed their STAGE.json is put aside: killed in between, `permcode run`
finds the stage unfinished and finishes it, and so does the same `permcode forget`.
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
from data_prep.finished.forget import Forgetting, plan_forgetting
from data_prep.finished.forget import forget as forget_in
from data_prep.finished.forget_requests import ForgetRequest, read_requests, record_request
from data_prep.finished.manifest import MANIFEST_NAME
from data_prep.finished.prepared import open_prepared
from data_prep.finished.summary import summarise
from finetune.experiment.files import PREDICTIONS_NAME
from pipeline.commands.exit_codes import exit_codes
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.folder.prep_folder import PrepFolder, find_prep_folder
from pipeline.folder.stage_record import StageRecord, output_files, read_record, write_record

_RECORD_ASIDE = f".{StageFiles.RECORD}.forgetting"


def forget_documents(folder: PrepFolder, request: ForgetRequest, dry_run: bool, reporter: Reporter) -> None:
    """Take what falls under `request` out of every finished prep folder of the run, or of the one folder.

    Says what is taken out. Repeating a request changes nothing. UserError when nothing ever fell under it, another
    process works in the folder, or a file is damaged.
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
                stack.enter_context(_record_put_aside(prep))
            requests = record_request(home, request)
            for prep in preps:
                for line in _told(prep, request, forget_in(prep, requests), is_planned=False):
                    reporter.line(line)
        for line in _what_stays(folder.run):
            reporter.line(line)


def _plan(folder: PrepFolder, request: ForgetRequest) -> list[str]:
    home = folder.run or folder.prep
    recorded = read_requests(home)
    lines: list[str] = []
    num_rows = 0
    for prep in _prep_folders(folder):
        forgetting = plan_forgetting(prep, (*recorded, request))
        num_rows += forgetting.num_rows
        lines += _told(prep, request, forgetting, is_planned=True)
    if not num_rows and request not in recorded:
        raise _nothing_found(home, request)
    return lines


def _told(prep: Path, request: ForgetRequest, forgetting: Forgetting, is_planned: bool) -> Iterator[str]:
    yield from _changes(prep, request, forgetting, "would take out" if is_planned else "took out")
    if forgetting.empty_splits:
        splits = ", ".join(forgetting.empty_splits)
        yield (
            f"{prep.name}: nothing {'would be' if is_planned and forgetting.num_documents else 'is'} left of {splits}: "
            f"to train or judge with {splits} again, give a new --out and a source without what was forgotten"
        )


def _changes(prep: Path, request: ForgetRequest, forgetting: Forgetting, verb: str) -> Iterator[str]:
    if forgetting.copies:
        yield (
            f"{prep.name}: equal or similar text stays under {', '.join(forgetting.copies)}: "
            "forget that too if it must go"
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
        f"{prep.name}: {len(forgetting.shards):,} of {forgetting.num_shards:,} tars written anew, "
        f"the manifest's revision is {forgetting.revision}"
    )


def _what_stays(run: Path | None) -> Iterator[str]:
    yield (
        "the ledger keeps the files' names with rule `forgotten`; the tokenizer stays, it holds no text but "
        "frequent pieces of words"
    )
    if run is not None and any(run.glob(f"pretrain-*/{StageFiles.RECORD}")):
        yield f"models in {run} were trained before and have seen the documents: train anew in another folder"
    judged = (
        []
        if run is None
        else sorted({path.parents[2].name for path in run.glob(f"*/*/*/{PREDICTIONS_NAME}")})
    )
    if judged:
        yield (
            f"predictions of {', '.join(judged)}, and their copies in MLflow, may hold texts that were judged: remove "
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
def _record_put_aside(prep: Path) -> Iterator[None]:
    """Take STAGE.json away for the block, then write it for what the folder is now.

    A folder without one, also aside, is left without.
    """
    aside = prep / _RECORD_ASIDE
    record = read_record(prep)
    if record is not None:
        os.replace(prep / StageFiles.RECORD, aside)
    else:
        record = read_record(prep, _RECORD_ASIDE)
    yield
    if record is not None:
        write_record(prep, _updated(record, prep))
        aside.unlink()


def _updated(record: StageRecord, prep: Path) -> StageRecord:
    """The record of the changed folder. Only the manifest changes under its name."""
    files = {}
    for path in output_files(prep):
        name = str(path.relative_to(prep))
        known = record.files.get(name) if name != MANIFEST_NAME else None
        files[name] = known or {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    corpus = open_prepared(prep)
    summary = summarise(corpus.ledger(), corpus.manifest) | evaluation_sets_of(record.summary)
    return replace(record, files=files, summary=summary)


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A run's --out folder, or a finished prep folder.", show_default=False
    ),
]


def forget(
    folder: Folder,
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="NAME", help="All documents of this repository.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="GLOB",
            help='All documents whose PATH or REPOSITORY/PATH matches; "*" matches "/" too.',
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be taken out; change nothing.")
    ] = False,
) -> None:
    """Take documents out of the shards, for good.

    Only the tars that held them are written anew. The request is kept in forgotten.json, and later preparations in
    this folder keep to it. Repeated or after a kill the command finishes what is left.

    \b
    permcode forget runs/demo --repo some/project
    permcode forget runs/demo --path "*/secret/*" --dry-run
    """
    with exit_codes(None):
        if (repo is None) == (path is None) or "" in (repo, path):
            raise UserError("say what to forget: --repo NAME or --path GLOB")
        request = ForgetRequest(repository=repo, path=path)
        forget_documents(find_prep_folder(folder), request, dry_run, Reporter())
