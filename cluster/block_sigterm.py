"""Runs a command with SIGTERM blocked and SIGINT as usual: python -m cluster.block_sigterm COMMAND...

Slurm sends SIGTERM to every process of a job that it ends, Ray's own included, and kills them a while later. With the
signal blocked, which new processes inherit, the cluster lives on while the run writes its checkpoint.
"""

import os
import signal
import sys


def main() -> None:
    """Replace this process by the command."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # A shell without job control starts what runs in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
