"""`permcode audit`: checks that the steps of a run consumed each token of the corpus once."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.reporter import Reporter
from data_prep.finished.prepared import open_prepared
from pipeline.commands.exit_codes import exit_codes
from pipeline.folder.accepted_changes import parse_config
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.folder.prep_folder import find_prep_folder
from pipeline.folder.pretrain_folder import find_status_folder
from pipeline.folder.run_folder import read_config
from pipeline.folder.sections import RunSections
from pipeline.folder.stage_record import read_record, verify_output
from pretrain.audit import Audit, check_digests, missing_steps, read_history
from pretrain.audit import audit as audit_books
from pretrain.checkpoint.compatibility import Rule, RunIdentity, differences
from pretrain.checkpoint.listing import step_folders
from pretrain.data.corpora import corpora_fingerprint, open_corpora
from pretrain.data.lanes import LaneReader
from pretrain.files import PretrainFiles
from pretrain.journal.events import Start, event_of


def audit_run(folder: Path, read: bool) -> Audit:
    """Audit the run in `folder`; with `read` every token is read again and compared.

    Steps before an accepted change of the corpus cannot be read again and are not compared.

    Raises UserError if `folder` is not a run, nothing was pretrained in it, its corpus was changed since, or the config
    or the journal is damaged. The journal of a finished stage must have the checksum that STAGE.json holds.
    """
    found = find_prep_folder(folder)
    if found.run is None:
        raise UserError(f"{folder} belongs to no run: give the run's --out folder")
    config = parse_config(read_config(found.run / RunFiles.CONFIG), RunSections)
    folder = _find_pretraining(found.run)
    _check_config(config, folder, found.run)
    # Checkpoints are listed first: their steps are in the journal before the checkpoint exists.
    checkpoints = step_folders(folder / PretrainFiles.CHECKPOINTS)
    records = read_journal(folder / PretrainFiles.JOURNAL)
    starts = [event for record in records if isinstance(event := event_of(record), Start)]
    if not starts:
        raise UserError(
            f"{folder / PretrainFiles.JOURNAL} has no start: pretraining has just begun, or the journal was cut short"
        )
    corpora = open_corpora(open_prepared(found.prep), config.pretrain.data)
    if starts[-1].corpus != corpora_fingerprint(corpora):
        raise UserError(
            f"{found.run} was trained on other shards than {found.prep.name} holds now (documents were forgotten?), "
            "so its steps cannot be compared with them"
        )
    settings = config.pretrain
    reader = LaneReader(corpora, "train", settings.lanes, settings.segment_tokens, config.seed)
    history = read_history(records)
    result = audit_books(history, reader)
    result.problems += missing_steps(history, checkpoints)
    if (folder / PretrainFiles.RESULT).exists() and history.last_step != settings.num_steps:
        result.problems.append(
            f"training has ended after {settings.num_steps} steps, but the journal has {history.last_step} of them"
        )
    if read and not result.problems:
        result.problems += check_digests(history, reader, history.comparable_steps)
        result.num_digests_checked = len(history.comparable_steps)
    return result


def _find_pretraining(run: Path) -> Path:
    """Return the newest pretraining folder of the run; the journal of a finished one is verified."""
    folder = find_status_folder(run).pretrain
    if folder is None:
        remains = sorted(run.glob("pretrain-*/checkpoints")) + sorted(
            run.glob(f"pretrain-*/{StageFiles.RECORD}")
        )
        if remains:
            raise UserError(f"{remains[0].parent / PretrainFiles.JOURNAL} is missing: restore it")
        raise UserError(f"nothing was pretrained in {run} yet: run `permcode pretrain` first")
    record = read_record(folder)
    if record is not None:
        verify_output(folder, record, PretrainFiles.JOURNAL)
    return folder


def _check_config(config: RunSections, folder: Path, run: Path) -> None:
    """Raise UserError where the config does not match that of the newest checkpoint in `folder`."""
    for checkpoint in step_folders(folder / PretrainFiles.CHECKPOINTS)[:1]:
        saved = RunIdentity.read(checkpoint)
        now = RunIdentity(config.pretrain, config.seed, saved.corpus, saved.tokenizer)
        for change in differences(saved, now):
            if change.rule is Rule.NEVER:
                raise UserError(
                    f"{run / RunFiles.CONFIG} does not match {checkpoint.name}: {change}: restore it"
                )


def audit_lines(found: Audit) -> list[str]:
    """Return the audit as lines for the terminal."""
    lines = [
        f"steps           {found.num_steps:,} in {found.num_attempts} attempts; {found.num_remade_steps} were lost "
        "by kills and rewinds and repeated",
        f"tokens consumed {found.tokens_consumed:,}",
        f"  lost          {found.tokens_lost:,}",
        f"  repeated      {found.tokens_repeated:,}",
        f"  passed over   {found.tokens_passed_over:,} by rewinds",
        f"  not applied   {found.num_unapplied_steps:,} steps whose loss or gradient was not finite",
        f"  tail          {found.tail_tokens:,} at the ends of epochs, too few for a step of all lanes "
        f"({found.epochs_begun} epochs begun)",
    ]
    if found.num_incomparable_steps:
        lines.append(
            f"other corpus    {found.num_incomparable_steps:,} steps were made before an accepted change of the "
            "corpus: their tokens cannot be read again, and the epochs are counted for the current corpus"
        )
    if found.num_digests_checked:
        lines.append(f"read again      {found.num_digests_checked:,} steps, token by token")
    lines += [f"problem: {problem}" for problem in found.problems]
    return [*lines, "the books do not balance" if found.problems else "the books balance"]


EXIT_UNBALANCED = 1


def audit(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run's --out folder.", show_default=False),
    ],
    read: Annotated[
        bool,
        typer.Option("--read", help="Also read every consumed token again and compare it with the journal."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prove which tokens each step of pretraining consumed: none lost, none repeated.

    Only the run's journal and the corpus's manifest are read; --read compares the shards' bytes as well. Exit code 1 if
    the books do not balance.

    \b
    permcode audit runs/demo
    permcode audit runs/demo --read
    """
    with exit_codes(None, only_shows=True):
        found = audit_run(folder, read)
        lines = [json.dumps(found.to_json(), indent=2)] if as_json else audit_lines(found)
        for line in lines:
            Reporter().line(line)
    if found.problems:
        raise typer.Exit(EXIT_UNBALANCED)
