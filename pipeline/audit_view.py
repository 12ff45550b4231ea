"""The audit of a run's folder, and how it is told."""

from pathlib import Path

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME, read_journal
from data_prep.prepared import open_prepared
from pipeline.accepting import config_of
from pipeline.config import RunConfig
from pipeline.prep_folder import find_prep_folder
from pipeline.run_folder import CONFIG_NAME, read_config
from pipeline.stage_record import RECORD_NAME, read_record, verify_output
from pipeline.status_folder import find_status_folder
from pretrain.checkpoint.compatibility import Rule, RunIdentity, differences
from pretrain.checkpoint.listing import step_folders
from pretrain.data.corpora import corpora_fingerprint, open_corpora
from pretrain.data.lanes import LaneReader
from pretrain.journal.events import Start, event_of
from pretrain.ledger.audit import Audit, audit, check_digests, missing_steps
from pretrain.ledger.books import books_of
from pretrain.run import RESULT_NAME


def audited(folder: Path, read: bool) -> Audit:
    """The audit of the run in `folder`, with every token compared where `read`.

    Steps made before an accepted change of the corpus are not compared.

    UserError when it is no run, nothing was pretrained in it, its corpus was changed since, or a file that says so is
    damaged: of a finished stage the journal has to be the one that STAGE.json knows.
    """
    found = find_prep_folder(folder)
    if found.run is None:
        raise UserError(f"{folder} belongs to no run: give the run's --out folder")
    config = config_of(read_config(found.run / CONFIG_NAME), RunConfig)
    begun = _begun(found.run)
    _check_config(config, begun, found.run)
    # Commits first: the journal knows the steps of a commit before the commit is there.
    commits = step_folders(begun / "checkpoints")
    records = read_journal(begun / JOURNAL_NAME)
    starts = [event for record in records if isinstance(event := event_of(record), Start)]
    if not starts:
        raise UserError(
            f"{begun / JOURNAL_NAME} knows of no start: pretraining has just begun, or it was cut short"
        )
    corpora = open_corpora(open_prepared(found.prep), config.pretrain.data)
    if starts[-1].corpus != corpora_fingerprint(corpora):
        raise UserError(
            f"{found.run} was trained on other shards than now lie in {found.prep.name} (documents were forgotten?), "
            "so its steps cannot be held against them"
        )
    settings = config.pretrain
    reader = LaneReader(corpora, "train", settings.lanes, settings.segment_tokens, config.seed)
    books = books_of(records)
    result = audit(books, reader)
    result.problems += missing_steps(books, commits)
    if (begun / RESULT_NAME).exists() and books.last_step != settings.num_steps:
        result.problems.append(
            f"training has ended after {settings.num_steps} steps, but the journal knows {books.last_step} of them"
        )
    if read and not result.problems:
        result.problems += check_digests(books, reader, books.comparable_steps)
        result.num_digests_checked = len(books.comparable_steps)
    return result


def _begun(run: Path) -> Path:
    """The newest pretraining, its journal checked where it is finished."""
    begun = find_status_folder(run).pretrain
    if begun is None:
        left = sorted(run.glob("pretrain-*/checkpoints")) + sorted(run.glob(f"pretrain-*/{RECORD_NAME}"))
        if left:
            raise UserError(f"{left[0].parent / JOURNAL_NAME} is missing: restore it")
        raise UserError(f"nothing was pretrained in {run} yet: `permcode pretrain` first")
    record = read_record(begun)
    if record is not None:
        verify_output(begun, record, JOURNAL_NAME)
    return begun


def _check_config(config: RunConfig, begun: Path, run: Path) -> None:
    """Raise UserError where the config is not of the run whose checkpoint lies there."""
    for commit in step_folders(begun / "checkpoints")[:1]:
        saved = RunIdentity.read(commit)
        now = RunIdentity(config.pretrain, config.seed, saved.corpus, saved.tokenizer)
        for change in differences(saved, now):
            if change.rule is Rule.NEVER:
                raise UserError(
                    f"{run / CONFIG_NAME} is not what {commit.name} was made with: {change}: restore it"
                )


def audit_lines(found: Audit) -> list[str]:
    """For people."""
    lines = [
        f"steps           {found.num_steps:,} in {found.num_attempts} attempts; {found.num_remade_steps} were thrown "
        "away by kills and rewinds and made again",
        f"tokens consumed {found.tokens_consumed:,}",
        f"  lost          {found.tokens_lost:,}",
        f"  repeated      {found.tokens_repeated:,}",
        f"  passed over   {found.tokens_passed_over:,} by rewinds",
        f"  not learnt    {found.num_unapplied_steps:,} steps whose loss or gradient was not finite",
        f"  tail          {found.tail_tokens:,} at the ends of epochs, too few for a step of all lanes "
        f"({found.epochs_begun} epochs begun)",
    ]
    if found.num_incomparable_steps:
        lines.append(
            f"other corpus    {found.num_incomparable_steps:,} steps were made before an accepted change of the "
            "corpus: their tokens cannot be read again, and what is said of epochs holds for the corpus of now"
        )
    if found.num_digests_checked:
        lines.append(f"read again      {found.num_digests_checked:,} steps, token by token")
    lines += [f"problem: {problem}" for problem in found.problems]
    return [*lines, "the books do not balance" if found.problems else "the books balance"]
