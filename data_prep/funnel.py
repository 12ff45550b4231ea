"""The table at the end of prep: files listed, dropped by each rule, and kept."""

from collections.abc import Mapping
from typing import Any

MB = 1_000_000


def funnel_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of files and megabytes (in the sources; of the kept files, of their text)."""
    rows = [("listed", summary["num_files_listed"], summary["num_bytes_listed"])]
    sizes = summary["bytes_dropped_by_rule"]
    rows += [(f"- {rule}", count, sizes.get(rule, 0)) for rule, count in summary["dropped_by_rule"].items()]
    rows.append(("kept", summary["num_files_kept"], summary["num_bytes_kept"]))
    width = max(len(name) for name, _, _ in rows)
    header = f"{'':{width}}  {'files':>12}  {'MB':>12}  {'of all files':>12}"
    total = max(1, summary["num_files_listed"])
    return [
        header,
        *(
            f"{name:{width}}  {count:>12,}  {size / MB:>12,.1f}  {count / total:>12.1%}"
            for name, count, size in rows
        ),
    ]
