"""`permcode inspect`: shows the contents of a prep folder, on a terminal or as plain text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from cluster.reporter import Reporter
from data_prep.documents import SPLITS
from data_prep.finished.inspection import Overview, ShownDocument, overview, read_document, sample_ids
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from data_prep.finished.verification import verify_prepared
from pipeline.commands.exit_codes import exit_codes
from pipeline.commands.options import Folder
from pipeline.commands.text_output import visible
from pipeline.folder.prep_folder import find_prep_folder

MB = 1_000_000
_NUM_LONGEST = 10
_MAX_ROWS = 25
_SAMPLE_LINES = 40
_PLAIN_WIDTH_CHARS = 120


def inspect_prepared(folder: Path, num_samples: int, reporter: Reporter) -> None:
    """Print the counts of a prep folder and some of its documents. Raises UserError if a file of it is damaged."""
    corpus = open_prepared(folder)
    console = _console(reporter)
    found = overview(corpus, _NUM_LONGEST)
    for line in _headlines(corpus, found.summary):
        reporter.line(line)
    for table in _tables(found):
        console.print()
        console.print(table)
    for number, document_id in enumerate(sample_ids(corpus, num_samples), start=1):
        console.print()
        reporter.line(f"sample {number}, chosen at random; `--document {document_id}` shows all of it")
        _print_document(read_document(corpus, document_id), console, _SAMPLE_LINES)


def show_document(folder: Path, document_id: str, reporter: Reporter) -> None:
    """Print one whole document. Raises UserError if no kept document has this id."""
    _print_document(read_document(open_prepared(folder), document_id), _console(reporter), None)


def verify_checksums(folder: Path, reporter: Reporter) -> None:
    """Verify every checksum. Raises UserError for the first damaged file."""
    manifest = open_prepared(folder).manifest
    total_bytes = sum(shard.tar_bytes for shards in manifest.splits.values() for shard in shards)
    with reporter.bar("verify", total=total_bytes / MB, unit="MB") as bar:
        verified = verify_prepared(folder, lambda num_bytes: bar.advance(num_bytes / MB))
    reporter.line(
        f"verified: manifest, tokenizer, ledger and {verified.num_shards:,} tars with their indexes, "
        f"{verified.num_blocks:,} blocks, {verified.num_members:,} members; nothing is damaged"
    )


def _console(reporter: Reporter) -> Console:
    """Return a console that does not wrap tables at 80 columns where the output is not a terminal."""
    return reporter.console if reporter.console.is_terminal else Console(width=_PLAIN_WIDTH_CHARS)


def _headlines(corpus: PreparedCorpus, summary: Mapping[str, Any]) -> list[str]:
    manifest = corpus.manifest
    clusters = {int(size): count for size, count in summary["cluster_sizes"].items()}
    lines = [
        f"{corpus.folder}: format {manifest.format_version}, revision {manifest.revision}, seed {manifest.seed}",
        f"files: {summary['num_files_listed']:,} listed ({summary['num_bytes_listed'] / MB:,.1f} MB), "
        f"{summary['num_files_kept']:,} kept ({summary['num_bytes_kept'] / MB:,.1f} MB of text) "
        f"from {summary['num_repositories']:,} repositories",
        f"tokens: vocabulary {manifest.vocab_size:,}, {summary['bytes_per_token']:.2f} bytes per token, "
        f"tokenizer {manifest.tokenizer_sha256[:12]}",
    ]
    if clusters:
        num_files = sum(size * count for size, count in clusters.items())
        lines.append(
            f"near duplicates: {num_files:,} files in {sum(clusters.values()):,} clusters, "
            f"the largest of {max(clusters):,}"
        )
    for name in ("redactions", "flags"):
        if summary[name]:
            lines.append(
                f"{name}: " + ", ".join(f"{what} {count:,}" for what, count in summary[name].items())
            )
    return lines


def _tables(found: Overview) -> list[Table]:
    summary = found.summary
    tables = [_splits(summary), _sources(summary)]
    for what, title in (("languages", "language"), ("licences", "licence")):
        tables.append(_shares(title, summary[f"{what}_listed"], summary[what]))
    if summary["dropped_by_rule"]:
        tables.append(_dropped(summary))
    return [*tables, _longest(found)]


def _splits(summary: Mapping[str, Any]) -> Table:
    table = _table("split", "documents", "text MB", "tokens", "bytes/token", "blocks", "tars")
    for split in (name for name in SPLITS if name in summary["splits"]):
        counts = summary["splits"][split]
        sizes = _sizes(counts["num_docs"], counts["num_bytes"], counts["num_tokens"])
        table.add_row(split, *sizes, f"{counts['num_blocks']:,}", f"{counts['num_shards']:,}")
    return table


def _sources(summary: Mapping[str, Any]) -> Table:
    table = _table("source", "documents", "text MB", "tokens", "bytes/token", "weight")
    for name, source in summary["sources"].items():
        sizes = _sizes(source["num_docs"], source["num_text_bytes"], source["num_tokens"])
        table.add_row(Text(visible(name)), *sizes, f"{source['weight']:g}")
    return table


def _shares(title: str, listed: Mapping[str, Any], kept: Mapping[str, Any]) -> Table:
    """Return a table sorted by the size of kept text, then by files listed; rare values are summed up in one row."""
    table = _table(title, "documents", "text MB", "tokens", "bytes/token", "listed files", "listed MB")
    nothing = {"num_files": 0, "num_bytes": 0, "num_tokens": 0}
    names = sorted(
        listed, key=lambda name: (-kept.get(name, nothing)["num_bytes"], -listed[name]["num_files"], name)
    )
    rows = [(name, kept.get(name, nothing), listed[name]) for name in names[:_MAX_ROWS]]
    if len(names) > _MAX_ROWS:
        rest = names[_MAX_ROWS:]
        rows.append((f"{len(rest)} more", _sum(kept, rest), _sum(listed, rest)))
    for name, ours, theirs in rows:
        sizes = _sizes(ours["num_files"], ours["num_bytes"], ours["num_tokens"])
        table.add_row(
            Text(visible(name)), *sizes, f"{theirs['num_files']:,}", f"{theirs['num_bytes'] / MB:,.1f}"
        )
    return table


def _sum(entries: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> dict[str, int]:
    chosen = [entries[name] for name in names if name in entries]
    return {
        key: sum(entry.get(key, 0) for entry in chosen) for key in ("num_files", "num_bytes", "num_tokens")
    }


def _dropped(summary: Mapping[str, Any]) -> Table:
    table = _table("dropped by rule", "files", "MB", "of all files")
    for rule, count in summary["dropped_by_rule"].items():
        num_mb = summary["bytes_dropped_by_rule"][rule] / MB
        table.add_row(rule, f"{count:,}", f"{num_mb:,.1f}", f"{count / summary['num_files_listed']:.1%}")
    return table


def _longest(found: Overview) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("longest documents", "tokens", "language", "repository", "path"):
        table.add_column(name, justify="right" if name == "tokens" else "left", overflow="fold")
    for document in found.longest:
        names = (document.language, document.repository, document.path)
        table.add_row(document.id, f"{document.num_tokens:,}", *(Text(visible(name)) for name in names))
    return table


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold", min_width=16)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _sizes(num_files: int, num_bytes: int, num_tokens: int) -> tuple[str, str, str, str]:
    per_token = f"{num_bytes / num_tokens:.2f}" if num_tokens else "-"
    return f"{num_files:,}", f"{num_bytes / MB:,.1f}", f"{num_tokens:,}", per_token


def _print_document(document: ShownDocument, console: Console, max_lines: int | None) -> None:
    """Print a document's metadata and its text, in colour on a terminal, up to `max_lines` lines."""
    meta = document.meta
    place = f"{meta.repository}: {meta.path}" + (f" ({meta.location})" if meta.location else "")
    facts = (
        f"document {meta.id} of {meta.source}, {document.split}, block {document.block.key}: {meta.language}, "
        f"licence {meta.licence or 'unknown'}, {meta.num_bytes:,} bytes, {document.num_tokens:,} tokens"
    )
    for line in (place, facts):
        console.print(Text(visible(line), style="bold"), soft_wrap=True)
    lines = visible(document.text).split("\n")
    shown = lines if max_lines is None else lines[:max_lines]
    if console.is_terminal:
        # The text of a language that the highlighter does not know is not coloured.
        console.print(
            Syntax(
                "\n".join(shown),
                meta.language.lower(),
                line_numbers=True,
                word_wrap=True,
                background_color="default",
            )
        )
    else:
        console.print("\n".join(shown), markup=False, highlight=False, soft_wrap=True)
    if len(shown) < len(lines):
        console.print(f"... {len(lines) - len(shown):,} more lines", style="dim", markup=False)


def inspect(
    folder: Folder,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="The number of sample documents to show.")
    ] = 1,
    document: Annotated[
        str | None, typer.Option("--document", metavar="ID", help="Show only this whole document.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Verify every checksum instead; exit code 2 if a file is damaged."),
    ] = False,
) -> None:
    """Show the contents of the shards: counts, the longest documents, dropped files, a sample.

    \b
    permcode inspect runs/demo
    permcode inspect runs/demo --document 0123456789abcdef
    permcode inspect runs/demo --verify
    """
    with exit_codes(None, only_shows=True):
        prep_folder = find_prep_folder(folder).prep
        if verify:
            verify_checksums(prep_folder, Reporter())
        elif document is not None:
            show_document(prep_folder, document, Reporter())
        else:
            inspect_prepared(prep_folder, sample, Reporter())
