"""Measure peak memory and wall time of a command with all the processes it starts.

    python -m benchmarks.run_memory permcode run --recipe demo --out runs/demo

Memory is the proportional set size (shared pages counted once), summed over the process tree every two seconds; a
peak between two samples is missed.
"""

import subprocess
import sys
import time

import psutil

_INTERVAL_S = 2.0


def tree_bytes(root: psutil.Process) -> int:
    """Return the proportional set size of a process and its descendants; those that end meanwhile count as 0."""
    total_bytes = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total_bytes += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total_bytes


def main() -> int:
    """Run the command of the arguments; return its exit code."""
    start_s = time.monotonic()
    child = subprocess.Popen(sys.argv[1:])
    root, peak_bytes = psutil.Process(child.pid), 0
    while child.poll() is None:
        try:
            peak_bytes = max(peak_bytes, tree_bytes(root))
        except psutil.NoSuchProcess:
            break
        time.sleep(_INTERVAL_S)
    code = child.wait()
    print(
        f"peak memory {peak_bytes / 1e9:.2f} GB, wall time {time.monotonic() - start_s:.0f} s, exit code {code}"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
