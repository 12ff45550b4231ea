"""The report's charts of the corpus, from the summary of prep."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.report.charts import (
    BLUE,
    CURVE_INCHES,
    GREEN,
    GREY,
    HALF_INCHES,
    ORANGE,
    RED,
    ROW_INCHES,
    WIDE_INCHES,
    Chart,
    bars,
    escape_labels,
)
from pipeline.report.svg import draw

_SPLIT_COLOURS = {"train": BLUE, "validation": ORANGE, "test": GREEN}
_MAX_PACKAGES = 30
_MAX_SHARES = 14
_MAX_LANGUAGES = 24
# Lower ends of the bars of cluster sizes.
_CLUSTER_BINS = (2, 3, 4, 5, 6, 8, 12, 20, 50, 100, 1000)
_KB = 1024


def corpus_charts(prep: Mapping[str, Any]) -> list[Chart]:
    """Return all charts that the summary has data for."""
    charts = [
        funnel(prep),
        shares("Languages", prep["languages_listed"], prep["languages"]),
        shares("Licences", prep["licences_listed"], prep["licences"]),
        document_lengths(prep["document_bytes_histogram"]),
    ]
    if prep["cluster_sizes"]:
        charts.append(cluster_sizes(prep["cluster_sizes"]))
    return [*charts, bytes_per_token(prep["languages"]), packages(prep)]


def funnel(prep: Mapping[str, Any]) -> Chart:
    """Return a chart of the files listed, dropped by each rule, and kept."""
    dropped = sorted(prep["dropped_by_rule"].items(), key=lambda item: (-item[1], item[0]))
    rows = [
        ("listed", prep["num_files_listed"], GREY),
        *((f"dropped: {rule.replace('_', ' ')}", count, RED) for rule, count in dropped),
        ("kept", prep["num_files_kept"], BLUE),
    ]
    svg = bars(
        "funnel", [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], "files"
    )
    note = (
        "Every file that a source listed has one decision; the ledger (ledger.parquet) has it file by file."
    )
    return Chart("Files kept and dropped, by rule", note, svg, is_wide=True)


def shares(
    what: str, listed: Mapping[str, Mapping[str, int]], kept: Mapping[str, Mapping[str, int]]
) -> Chart:
    """Return a chart of the bytes by language or licence, of listed files and kept text; rare values are summed up."""
    before = {name: entry["num_bytes"] for name, entry in listed.items()}
    after = {name: entry["num_bytes"] for name, entry in kept.items()}
    names = sorted(before.keys() | after.keys(), key=lambda n: (-after.get(n, 0), -before.get(n, 0), n))
    groups = {name: [name] for name in names[:_MAX_SHARES]}
    if rest := names[_MAX_SHARES:]:
        groups[f"{len(rest)} others"] = rest
    svg = _paired_bars(
        what.lower(),
        list(groups),
        _percentages(groups.values(), before),
        _percentages(groups.values(), after),
    )
    note = "Shares of the bytes: of all files listed, and of the text that is kept."
    return Chart(f"{what} before and after", note, svg, is_wide=True)


def document_lengths(histogram: Mapping[str, int]) -> Chart:
    """Return a chart of the kept documents by size; each bar doubles the size."""
    counts = {int(size): count for size, count in histogram.items()}
    sizes = _octaves(min(counts), max(counts)) if counts else []
    values = [counts.get(size, 0) for size in sizes]
    svg = _columns("lengths", [_size_text(size) for size in sizes], values, "documents", "bytes, from")
    return Chart("Document lengths", "Kept documents by bytes of text; each bar doubles the size.", svg)


def cluster_sizes(num_by_size: Mapping[str, int]) -> Chart:
    """Return a chart of the near-duplicate clusters by number of files; one file of each is kept."""
    counts = {int(size): count for size, count in num_by_size.items()}
    starts = [start for start in _CLUSTER_BINS if start <= max(counts)]
    ends = [*starts[1:], max(counts) + 1]
    values = [
        sum(count for size, count in counts.items() if start <= size < end)
        for start, end in zip(starts, ends, strict=True)
    ]
    labels = [
        f"{start}" if end == start + 1 else f"{start}-{end - 1}"
        for start, end in zip(starts, ends, strict=True)
    ]
    svg = _columns("clusters", labels, values, "clusters", "files in the cluster", is_log=True)
    num_files = sum(size * count for size, count in counts.items())
    num_clusters = sum(counts.values())
    note = f"{num_files:,} files in {num_clusters:,} clusters, the largest of {max(counts):,}; one of each is kept."
    return Chart("Near-duplicate clusters", note, svg)


def bytes_per_token(by_language: Mapping[str, Mapping[str, int]]) -> Chart:
    """Return a chart of the bytes per token in the largest languages."""
    known = [(name, entry) for name, entry in by_language.items() if entry["num_tokens"]]
    rows = sorted(known, key=lambda row: (-row[1]["num_bytes"], row[0]))[:_MAX_LANGUAGES]
    labels = [f"{name} ({entry['num_bytes'] / 1e6:,.1f} MB)" for name, entry in rows]
    values = [entry["num_bytes"] / entry["num_tokens"] for _, entry in rows]
    svg = bars("compression", labels, values, [GREEN] * len(rows), "bytes per token", "{:.2f}")
    note = f"Higher means shorter sequences. The {len(rows)} languages with most text, all splits."
    return Chart("Bytes per token by language", note, svg, is_wide=True)


def packages(prep: Mapping[str, Any]) -> Chart:
    """Return a chart of the largest packages, coloured by split."""
    ordered = sorted(prep["repositories"], key=lambda entry: (-entry["num_bytes"], entry["name"]))
    largest = ordered[:_MAX_PACKAGES]
    colours = [_SPLIT_COLOURS.get(entry["split"], GREY) for entry in largest]
    sizes = [entry["num_bytes"] / 1e6 for entry in largest]
    names = [entry["name"] for entry in largest]
    svg = bars("packages", names, sizes, colours, "MB of text", "{:.1f}", _SPLIT_COLOURS)
    rest = prep["num_bytes_kept"] / 1e6 - sum(sizes)
    num_others = prep["num_repositories"] - len({entry["name"] for entry in largest})
    others = f"; {num_others:,} smaller ones hold {rest:.1f} MB more" if num_others > 0 else ""
    note = f"The {len(largest)} largest of {prep['num_repositories']:,} packages{others}."
    return Chart("Packages by split", note, svg, is_wide=True)


def _percentages(groups: Iterable[Sequence[str]], sizes: Mapping[str, int]) -> list[float]:
    total = sum(sizes.values()) or 1
    return [100 * sum(sizes.get(name, 0) for name in group) / total for group in groups]


def _paired_bars(name: str, labels: Sequence[str], before: Sequence[float], after: Sequence[float]) -> str:
    """Return an SVG of two horizontal bars per label, in per cent: listed above kept."""

    def paint(axes: Any) -> None:
        for offset, values, colour, label in ((-0.2, before, GREY, "listed"), (0.2, after, BLUE, "kept")):
            places = [place + offset for place in range(len(labels))]
            drawn = axes.barh(places, values, color=colour, height=0.36, label=label)
            axes.bar_label(drawn, [f"{value:.1f} %" for value in values], padding=4, fontsize=7)
        axes.set_yticks(range(len(labels)), escape_labels(labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, max([*before, *after, 1e-9]) * 1.1)
        axes.grid(False)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("% of bytes")
        axes.legend(loc="lower right")

    return draw(WIDE_INCHES, 0.75 + 1.5 * ROW_INCHES * len(labels), paint, name)


def _columns(
    name: str, labels: Sequence[str], values: Sequence[int], unit: str, axis: str, is_log: bool = False
) -> str:
    def paint(axes: Any) -> None:
        axes.bar(range(len(values)), values, color=BLUE, width=0.8)
        axes.set_xticks(range(len(labels)), labels, rotation=45 if len(labels) > 8 else 0, fontsize=7)
        axes.tick_params(axis="x", length=0)
        if is_log:
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.7)
        axes.set_ylabel(unit)
        axes.set_xlabel(axis)

    return draw(HALF_INCHES, CURVE_INCHES, paint, name)


def _octaves(smallest: int, largest: int) -> list[int]:
    sizes = [smallest]
    while sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    return sizes


def _size_text(num_bytes: int) -> str:
    for unit, size in (("M", _KB * _KB), ("k", _KB)):
        if num_bytes >= size:
            return f"{num_bytes // size}{unit}"
    return str(num_bytes)
