"""`permcode trace`: finds the source line of a position in the corpus or in training."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.reporter import Reporter
from data_prep.finished.prepared import open_prepared
from data_prep.finished.trace import TextPlace, TracedTokens, trace_range, trace_token
from pipeline.commands.exit_codes import exit_codes
from pipeline.commands.options import Folder
from pipeline.commands.text_output import visible
from pipeline.folder.accepted_changes import parse_config
from pipeline.folder.layout import RunFiles
from pipeline.folder.prep_folder import PrepFolder, find_prep_folder, prep_read_by
from pipeline.folder.pretrain_folder import find_status_folder
from pipeline.folder.run_folder import read_config
from pipeline.folder.sections import RunSections
from pretrain.checkpoint.compatibility import IDENTITY_NAME, RunIdentity
from pretrain.data.corpora import corpora_fingerprint, open_corpora
from pretrain.data.lanes import LaneReader
from pretrain.files import PretrainFiles
from pretrain.journal.replay import replayed

_MAX_LINE_CHARS = 160


def token_lines(folder: PrepFolder, split: str, token: int) -> list[str]:
    """Return lines about the token at a position of a split. Raises UserError if there is no such token."""
    corpus = open_prepared(folder.prep)
    return _lines(f"token {token} of split {split}", trace_token(corpus, split, token))


def step_lines(folder: PrepFolder, step: int, lane: int, offset: int | None) -> list[str]:
    """Return lines about the segment that `lane` read at `step` (both from 0) of the run's pretraining.

    They describe every document of the segment, or only the token at `offset`. Raises UserError if the run has no such
    position, or the folder belongs to no run.
    """
    if folder.run is None:
        raise UserError(
            f"{folder.prep} belongs to no run, so it has no steps: give the run's --out folder, or --token"
        )
    begun = find_status_folder(folder.run).pretrain
    if begun is not None and (read := prep_read_by(begun)) is not None and read != folder.prep.resolve():
        raise UserError(
            f"{begun} reads {read.name}, not {folder.prep.name}: give the run's --out folder, or --token"
        )
    config = parse_config(read_config(folder.run / RunFiles.CONFIG), RunSections)
    corpus = open_prepared(folder.prep)
    corpora = open_corpora(corpus, config.pretrain.data)
    size = config.pretrain.segment_tokens
    if corpus.manifest.revision > 1:
        _refuse_shifted(folder.run, folder.prep, corpora_fingerprint(corpora))
    _check("step", step, config.pretrain.num_steps, folder.run)
    _check("lane", lane, config.pretrain.lanes, folder.run)
    reader = LaneReader(corpora, "train", config.pretrain.lanes, size, config.seed)
    wanted = range(size) if offset is None else range(_check("offset", offset, size, folder.run), offset + 1)
    lines, position = [], 0
    for place in reader.block_ranges(_data_step(begun, step), lane):
        start, end = max(position, wanted.start), min(position + place.num_tokens, wanted.stop)
        if start < end:
            in_block = place.start + start - position
            source = corpora[place.corpus_number].corpus
            for traced in trace_range(source, place.block, in_block, end - start):
                span = _span(start, traced.num_tokens)
                lines += _lines(f"step {step}, lane {lane}, {span} of {size}", traced)
                start += traced.num_tokens
        position += place.num_tokens
    return lines


def _data_step(begun: Path | None, step: int) -> int:
    """Return the data step that `step` (from 0) of a pretraining consumed; it differs after a rewind."""
    known = (
        replayed(read_journal(begun / PretrainFiles.JOURNAL)).surviving_steps() if begun is not None else {}
    )
    return known[step + 1].cursor if step + 1 in known else step


def _refuse_shifted(run: Path, prep: Path, corpus: str) -> None:
    """Raise UserError for a run trained before documents were forgotten: that shortened blocks, so steps differ."""
    for path in sorted(run.glob(f"pretrain-*/checkpoints/*/{IDENTITY_NAME}")):
        if RunIdentity.read(path.parent).corpus != corpus:
            raise UserError(
                f"{path.parents[2]} was trained before documents of {prep.name} were forgotten, so its steps "
                "cannot be traced any more: trace positions with --token"
            )


def _check(name: str, value: int, num_values: int, run: Path) -> int:
    if not 0 <= value < num_values:
        raise UserError(f"{run} has no {name} {value}: give one from 0 to {num_values - 1}")
    return value


def _span(start: int, num_tokens: int) -> str:
    return f"token {start}" if num_tokens == 1 else f"tokens {start} to {start + num_tokens - 1}"


def _lines(what: str, traced: TracedTokens) -> list[str]:
    meta, block = traced.document, traced.block
    in_document = _span(traced.token_in_document, traced.num_tokens)
    end = ", the end of the document" if traced.is_end_of_document and traced.num_tokens == 1 else ""
    facts = [
        f"{what}:",
        f"  source      {meta.source}",
        f"  repository  {meta.repository}",
        f"  path        {meta.path}",
        *([f"  location    {meta.location}"] if meta.location else []),
        f"  document    {meta.id}, {in_document} of it{end}",
        f"  block       {block.key} in shards/{block.shard}.tar, from token {traced.token_in_block} on",
        f"  line        {_place(traced.first)}",
        *_quote(traced.first),
    ]
    if traced.last.line != traced.first.line:
        facts += [f"  to line     {_place(traced.last)}", *_quote(traced.last)]
    return [visible(fact) for fact in facts]


def _place(place: TextPlace) -> str:
    return f"{place.line}, column {place.column}"


def _quote(place: TextPlace) -> list[str]:
    """Return the line with a mark below the column; a long line is cut around it."""
    start = max(0, place.column - 1 - _MAX_LINE_CHARS // 2)
    text = visible(place.text[start : start + _MAX_LINE_CHARS]).replace("\t", " ")
    before = visible(place.text[start : place.column - 1])
    cut = "..." if start else ""
    return [f"    {cut}{text}", f"    {' ' * (len(cut) + len(before))}^"]


def trace(
    folder: Folder,
    token: Annotated[
        int | None, typer.Option("--token", metavar="N", help="The position of a token in the split, from 0.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="The split that --token counts in.")] = "train",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="A step of the run's pretraining, from 0.")
    ] = None,
    lane: Annotated[
        int | None, typer.Option("--lane", metavar="L", help="With --step: the lane of the batch, from 0.")
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", metavar="K", help="With --step: show only this token of the segment."),
    ] = None,
) -> None:
    """Find a token's repository, path, line and column.

    \b
    permcode trace runs/demo --token 123456
    permcode trace runs/demo --step 300 --lane 7
    """
    with exit_codes(None, only_shows=True):
        if (token is None) == (step is None) or (step is None) != (lane is None):
            raise UserError("give the token to trace: --token N, or --step N with --lane L")
        prep_folder = find_prep_folder(folder)
        if token is not None:
            lines = token_lines(prep_folder, split, token)
        else:
            lines = step_lines(prep_folder, step or 0, lane or 0, offset)
        for line in lines:
            Reporter().line(line)
