"""The program's start: makes Ctrl-C exit quietly from the first moment, even during imports."""

from __future__ import annotations

import sys

from slurm_tiresias.errors import INTERRUPTED


def main() -> None:
    """Run the program; this is its entry point."""
    try:
        from slurm_tiresias.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
