"""The audit of a run's folder, and how it is told."""

from pathlib import Path

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME, read_journal
from data_prep.prepared import open_prepared
from pipeline.prep_folder import find_prep_folder
from pipeline.recipe import load_run_config
from pipeline.run_folder import CONFIG_NAME
from pipeline.status_folder import find_status_folder
from pretrain.data.corpora import corpora_fingerprint, open_corpora
from pretrain.data.lanes import LaneReader
from pretrain.ledger.audit import Audit, audit, check_digests
from pretrain.ledger.lineage import lineage_of


def audited(folder: Path, read: bool) -> Audit:
    """The audit of the run in `folder`, with every token compared where `read`.

    Steps made before an accepted change of the corpus are not compared.

    UserError when it is no run, nothing was pretrained in it, or its corpus was changed since.
    """
    found = find_prep_folder(folder)
    if found.run is None:
        raise UserError(f"{folder} belongs to no run: give the run's --out folder")
    config = load_run_config(str(found.run / CONFIG_NAME))
    begun = find_status_folder(found.run).pretrain
    records = read_journal(begun / JOURNAL_NAME) if begun is not None else []
    starts = [record for record in records if record.name == "start"]
    if not starts:
        raise UserError(f"nothing was pretrained in {found.run} yet: `permcode pretrain` first")
    corpora = open_corpora(open_prepared(found.prep), config.pretrain.data)
    if starts[-1].facts["corpus"] != corpora_fingerprint(corpora):
        raise UserError(
            f"{found.run} was trained on other shards than now lie in {found.prep.name} (documents were forgotten?), "
            "so its steps cannot be held against them"
        )
    settings = config.pretrain
    reader = LaneReader(corpora, "train", settings.lanes, settings.segment_tokens, config.seed)
    lineage = lineage_of(records)
    result = audit(lineage, reader)
    if read and not result.problems:
        result.problems += check_digests(lineage, reader, lineage.comparable_steps)
        result.num_digests_checked = len(lineage.comparable_steps)
    return result


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
